package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const secret = "s3cr3t-pa55"

func TestURLErrors(t *testing.T) {
	for _, url := range []string{
		"postgres://user:" + secret + "@host:70000/db",
		"postgres://user:" + secret + "@host/db?sslmode=strict",
		"postgres://user:" + secret + "@host/db?pool_max_conns=many",
		"postgres://user:" + secret + "@host/db?connect_timeout=" + secret,
		"postgres://user:x/" + secret + "@host:5432/db",
		"postgres://user:x?" + secret + "@host:5432/db",
		"postgres://user:x#" + secret + "@host:port/db",
		"postgres://user:p@x/" + secret + "@host:5432/db",
		"postgres://user:p@x?" + secret + "@host:5432/db",
		"postgres://user:p@x:1/" + secret + "@host:5432/db",
		"postgres://user:%zz" + secret + "@host:5432/db",
		"postgres://a@user:" + secret + "@host:" + secret + "/db",
		"postgres://user:first@x:" + secret + "@host/db",
		"postgres://a@user:%20" + secret + "@host/db",
		"postgres://user:" + secret + "@host:5432/db?sslmode=" + secret,
		"postgres://host:x" + secret + "/db",
		"host=h password=" + secret + " sslmode=strict",
		"host=h password='" + secret + " unclosed",
		"password=" + secret + " =",
		"postgres://host/db?password=" + secret + "&port=" + secret,
	} {
		_, err := Open(t.Context(), url, nil)
		if err == nil {
			t.Errorf("%s: opened", url)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), secret) {
				t.Errorf("%s: error is %q, which tells the password", url, e)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error is %q, want one line", url, err)
		}
	}
	if _, err := Open(t.Context(), "mysql://user:"+secret+"@host/db", nil); fmt.Sprint(err) != "PostgreSQL URL: begins with mysql: write postgres://user:password@host:5432/database" {
		t.Errorf("the URL of another database: %v", err)
	}
	_, err := Open(t.Context(), "postgres://user:"+secret+"@host/db?sslmode=strict", nil)
	if err == nil || !strings.Contains(err.Error(), "sslmode") {
		t.Errorf("a wrong sslmode: error is %v, want it named", err)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, cfg := range []Config{
		{MaxConns: -1}, {LeaseFor: -1}, {LeaseFor: time.Microsecond}, {LockTimeout: -time.Second}, {LockTimeout: 24 * time.Hour},
	} {
		if _, err := cfg.withDefaults(); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	c, err := (*Config)(nil).withDefaults()
	if err != nil || c.LeaseFor != 30*time.Second || c.LockTimeout != 500*time.Millisecond {
		t.Errorf("defaults are %+v, %v", c, err)
	}
}

// A pool that is missing or closed is refused, with what to do.
func TestNoPool(t *testing.T) {
	_, err := New(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "the *pgxpool.Pool is nil") {
		t.Errorf("without a pool: %v", err)
	}
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/flights")
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	_, err = New(t.Context(), pool, nil)
	if want := "closed pool: close the store, and its pool, after its consumers have stopped"; fmt.Sprint(err) != want {
		t.Errorf("with a closed pool: %v, want %s", err, want)
	}
}

func TestUnreachable(t *testing.T) {
	const addr = "127.0.0.1:1" // nothing listens there, and no other program gets it
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	for _, c := range []struct {
		url  string
		want []string
	}{
		{"postgres://user:" + secret + "@" + addr + "/flights", []string{addr, "database flights", "as user", "connection refused: check host and port, and whether the server runs"}},
		{"postgres://user:" + secret + "@" + addr + ",[::1]:1/flights", []string{addr, "[::1]:1", "refused"}},
		{"host=/nonexistent user=u", []string{"database not named (is the URL complete?)"}},
		{"host=/nonexistent port=5433 user=u dbname=flights password=" + secret, []string{"/nonexistent/.s.PGSQL.5433", "no such file or directory: check host and port"}},
		// Two dots: no name server is asked.
		{"postgres://user:" + secret + "@host..invalid/flights", []string{"host..invalid:5432", "not known: no such host: correct the host"}},
		{"postgres://user:" + secret + "@" + deaf.Addr().String() + "/flights?sslmode=disable", []string{deaf.Addr().String(), "in time: check host, port and firewalls"}},
	} {
		within := time.Minute
		if strings.Contains(c.url, deaf.Addr().String()) {
			within = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := Open(ctx, c.url, nil)
		cancel()
		if err == nil {
			t.Fatalf("%s: opened", c.url)
		}
		for _, part := range append(c.want, "PostgreSQL") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error is %q, want it to name %q", err, part)
			}
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), secret) {
				t.Errorf("the error tells the password: %q", e)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("the error has several lines: %q", err)
		}
	}
}

// TestPasswordNeedsTLS: a password that a function returns may be a token, which is sent
// as it is: never without TLS, except within a machine.
func TestPasswordNeedsTLS(t *testing.T) {
	cfg := Config{LeaseFor: time.Minute, Password: func(context.Context) (string, error) { return "token", nil }}
	for url, ok := range map[string]bool{
		"postgres://u@contoso.postgres.database.azure.com/db":                     false, // sslmode=prefer may go on without
		"postgres://u@contoso.postgres.database.azure.com/db?sslmode=disable":     false,
		"postgres://u@contoso.postgres.database.azure.com/db?sslmode=require":     true,
		"postgres://u@contoso.postgres.database.azure.com/db?sslmode=verify-full": true,
		"postgres://u@127.0.0.1,10.0.0.1/db?sslmode=disable":                      false,
		"postgres://u@127.0.0.1/db?sslmode=disable":                               true,
		"postgres://u@localhost/db":                                               true,
		"host=/tmp user=u":                                                        true,
	} {
		if _, err := parse(url, cfg); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "sslmode=verify-full") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
