package postgres

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzURL: a URL is read as the official driver would, or refused in one line;
// and whatever it is, its password is not printed.
func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"postgres://u:PASSWORD@localhost:5432/db?sslmode=disable", "postgresql:///db?host=/tmp&password=PASSWORD",
		"host=localhost user=u password='PASSWORD' port=x", "postgres://u:PASSWORD@h:port/db", "postgres://u:PASSWORD@[::1/db",
		"postgres://u:a PASSWORD@h/db", "postgres://u:PASSWORD%zz@h/db", "postgres://u:p@PASSWORD@h:1x/db", "postgres://u:PASSWORD@h/db?sslmode=PASSWORD",
		"postgres://h/db?sslcert=PASSWORD&sslkey=/x", "postgres://:PASSWORD@,PASSWORD", "mysql://u:PASSWORD@h/db", "PASSWORD", "",
	} {
		f.Add(s)
	}
	const canary = "k4n4ry"
	f.Setenv("HOME", f.TempDir())
	f.Fuzz(func(t *testing.T, text string) {
		given := strings.ReplaceAll(text, "PASSWORD", canary)
		pc, err := Parse(given, Settings{LeaseFor: time.Minute, RequestTimeout: time.Second})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("an error of several lines: %q", err)
			}
			if holdsPassword(given, canary) && strings.Contains(err.Error(), canary) {
				t.Fatalf("%q: the password is printed: %v", given, err)
			}
			return
		}
		if pc.ConnConfig.ConnectTimeout <= 0 || pc.ConnConfig.DialFunc == nil || pc.ConnConfig.RuntimeParams["tcp_user_timeout"] == "" {
			t.Fatalf("%q: a connection that may hang: %+v", given, pc.ConnConfig.RuntimeParams)
		}
		where, elsewhere := place(&pc.ConnConfig.Config), pc.ConnConfig.Host+pc.ConnConfig.Database+pc.ConnConfig.User
		for _, other := range pc.ConnConfig.Fallbacks {
			elsewhere += other.Host
		}
		if p := pc.ConnConfig.Password; strings.Contains(p, canary) && strings.Contains(where, canary) &&
			!strings.Contains(elsewhere, canary) {
			t.Fatalf("%q: the password is printed: %s", given, where)
		}
	})
}

// holdsPassword reports whether a text stands where a URL has its password, or where it
// may have been meant to be.
func holdsPassword(given, text string) bool {
	u, err := url.Parse(given)
	if err != nil {
		return true
	}
	p, _ := u.User.Password()
	return strings.Contains(p, text) || strings.Contains(u.Query().Get("password"), text)
}
