package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/pipeline/web"
)

const token = "correct horse battery staple"

var locked = web.Config{Token: token}

func fromAddress(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// signIn sends the form and returns the cookie, if there is one.
func (w *world) signIn(token, address string) (*http.Cookie, int) {
	w.t.Helper()
	rec := w.ask("POST", "/sign-in", url.Values{"token": {token}}.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address
	})
	for _, c := range rec.Result().Cookies() {
		return c, rec.Code
	}
	return nil, rec.Code
}

func withCookie(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(c) }
}

func TestWithoutATokenOnlyThisMachineMayLook(t *testing.T) {
	w := newWorld(t, 1, nil)
	for name, change := range map[string]func(*http.Request){
		"another machine":       fromAddress("192.0.2.7:50000"),
		"another machine, IPv6": fromAddress("[2001:db8::7]:50000"),
		// A page of another site whose name was made to lead here.
		"another name":      func(r *http.Request) { r.Host = "attacker.example:8443" },
		"another address":   func(r *http.Request) { r.Host = "192.0.2.1" },
		"no host":           func(r *http.Request) { r.Host = "" },
		"something unusual": func(r *http.Request) { r.RemoteAddr = "@" },
		"a proxy's":         func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") },
		"a gateway's":       func(r *http.Request) { r.Header.Set("Via", "1.1 gateway") },
	} {
		if rec := w.ask("GET", "/api/dead-letters", "", change); rec.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
	for _, host := range []string{"127.0.0.1:8443", "localhost:8443", "LOCALHOST", "[::1]:8443", "127.8.8.8"} {
		if rec := w.ask("GET", "/", "", func(r *http.Request) { r.Host = host }); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", host, rec.Code, rec.Body)
		}
	}
}

func TestSignIn(t *testing.T) {
	cfg := locked
	w := newWorld(t, 1, &cfg)
	rec := w.ask("GET", "/partitions", "", nil)
	if at := rec.Header().Get("Location"); rec.Code != http.StatusSeeOther || at != "/sign-in?to=%2Fpartitions" {
		t.Errorf("a page leads to %d %s", rec.Code, at)
	}
	if rec := w.ask("GET", "/api/dead-letters", "", nil); rec.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", rec.Code)
	}
	if rec := w.ask("GET", "/sign-in?to=%2Fpartitions", "", nil); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), `value="/partitions"`) {
		t.Errorf("the form: %d %s", rec.Code, rec.Body)
	}
	for _, elsewhere := range []string{"//evil.example", "https://evil.example", "/\\evil.example"} {
		if rec := w.ask("GET", "/sign-in?to="+url.QueryEscape(elsewhere), "", nil); strings.Contains(rec.Body.String(), "evil") {
			t.Errorf("it leads to %s: %s", elsewhere, rec.Body)
		}
	}
	if c, code := w.signIn("wrong", "192.0.2.1:1"); c != nil || code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d, %v", code, c)
	}
	c, code := w.signIn(token+"\n", "192.0.2.1:1") // as it is copied
	if c == nil || code != http.StatusSeeOther {
		t.Fatalf("the right one: %d, %v", code, c)
	}
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || !strings.HasPrefix(c.Name, "__Host-") || strings.Contains(c.Value, token) {
		t.Errorf("the cookie is %v", c)
	}
	if rec := w.ask("GET", "/api/dead-letters", "", withCookie(c)); rec.Code != http.StatusOK {
		t.Errorf("signed in: %d %s", rec.Code, rec.Body)
	}
	forged := *c
	forged.Value = strings.Repeat("A", len(c.Value))
	if rec := w.ask("GET", "/api/dead-letters", "", withCookie(&forged)); rec.Code != http.StatusUnauthorized {
		t.Errorf("with a forged cookie: %d", rec.Code)
	}
	w.ask("POST", "/sign-out", "", withCookie(c))
	if rec := w.ask("GET", "/api/dead-letters", "", withCookie(c)); rec.Code != http.StatusUnauthorized {
		t.Errorf("signed out: %d", rec.Code)
	}
}

func TestTokensOfScripts(t *testing.T) {
	cfg := locked
	w := newWorld(t, 1, &cfg)
	for name, change := range map[string]func(*http.Request){
		"bearer": bearer(token),
		"basic":  func(r *http.Request) { r.SetBasicAuth("anybody", token) },
	} {
		if rec := w.ask("GET", "/api/dead-letters", "", change); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"wrong": bearer(token + "."), "empty": bearer(""), "basic": func(r *http.Request) { r.SetBasicAuth(token, "") },
	} {
		if rec := w.ask("GET", "/api/dead-letters", "", change); rec.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
}

func TestGuessingIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := locked
		w := newWorld(t, 1, &cfg)
		for i := range 5 {
			if _, code := w.signIn("a guess", "192.0.2.1:1"); code != http.StatusUnauthorized {
				t.Errorf("guess %d: %d", i, code)
			}
		}
		if c, code := w.signIn(token, "192.0.2.1:2"); c != nil || code != http.StatusTooManyRequests {
			t.Errorf("after five guesses: %d, %v", code, c)
		}
		if rec := w.ask("GET", "/", "", func(r *http.Request) { bearer(token)(r); fromAddress("192.0.2.1:3")(r) }); rec.Code != http.StatusTooManyRequests {
			t.Errorf("a script from there: %d", rec.Code)
		}
		if c, _ := w.signIn(token, "192.0.2.2:1"); c == nil {
			t.Error("another address is locked out too")
		}
		time.Sleep(6 * time.Second)
		if c, _ := w.signIn(token, "192.0.2.1:4"); c == nil {
			t.Error("it stays locked out")
		}
		// From ever other addresses of a network of its own.
		for i := range 5 {
			w.signIn("a guess", "[2001:db8::"+string(rune('1'+i))+"]:1")
		}
		if _, code := w.signIn(token, "[2001:db8::9]:1"); code != http.StatusTooManyRequests {
			t.Errorf("from the same network: %d", code)
		}
	})
}

func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := locked
		w := newWorld(t, 1, &cfg)
		c, _ := w.signIn(token, "192.0.2.1:1")
		time.Sleep(12*time.Hour - time.Second)
		if rec := w.ask("GET", "/api/dead-letters", "", withCookie(c)); rec.Code != http.StatusOK {
			t.Errorf("within twelve hours: %d", rec.Code)
		}
		time.Sleep(2 * time.Second)
		if rec := w.ask("GET", "/api/dead-letters", "", withCookie(c)); rec.Code != http.StatusUnauthorized {
			t.Errorf("after them: %d", rec.Code)
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	cfg := locked
	w := newWorld(t, 1, &cfg)
	first, _ := w.signIn(token, "192.0.2.1:1")
	var last *http.Cookie
	for range 1000 {
		last, _ = w.signIn(token, "192.0.2.1:1")
	}
	if rec := w.ask("GET", "/api/dead-letters", "", withCookie(first)); rec.Code != http.StatusUnauthorized {
		t.Errorf("the oldest of 1,001 sessions: %d", rec.Code)
	}
	if rec := w.ask("GET", "/api/dead-letters", "", withCookie(last)); rec.Code != http.StatusOK {
		t.Errorf("the newest: %d", rec.Code)
	}
}

func TestShortTokensAreRefused(t *testing.T) {
	w := newWorld(t, 1, nil)
	_, err := web.New([]web.Pipeline{{Name: "p", Source: w.hub, Leases: w.leases}}, &web.Config{Token: "secret"})
	if err == nil || !strings.Contains(err.Error(), "16") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestRequestsFromOtherSites(t *testing.T) {
	cfg := locked
	w := newWorld(t, 1, &cfg)
	w.park(t, 1)
	c, _ := w.signIn(token, "127.0.0.1:1")
	discard := func(change func(*http.Request)) int {
		return w.ask("POST", "/api/dead-letters/discard", `{"ids":[1]}`, func(r *http.Request) { withCookie(c)(r); change(r) }).Code
	}
	for name, change := range map[string]func(*http.Request){
		"another site":    func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a neighbour":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an older client": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"a null origin":   func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		if code := discard(change); code != http.StatusForbidden {
			t.Errorf("%s: %d", name, code)
		}
	}
	if rec := w.ask("POST", "/sign-in", "token=x", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); rec.Code != http.StatusForbidden {
		t.Errorf("signing in from another site: %d", rec.Code)
	}
	if rec := w.ask("GET", "/api/dead-letters/discard?ids=1", "", withCookie(c)); rec.Code == http.StatusOK {
		t.Error("a GET has discarded")
	}
	if l, err := w.store.Get(t.Context(), group, 1); err != nil || l.Status != "dead" {
		t.Fatalf("afterwards it is %v, %v", l.Status, err)
	}
	if code := discard(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }); code != http.StatusOK {
		t.Errorf("the page itself: %d", code)
	}
}

func TestPagesAreKeptApart(t *testing.T) {
	w := newWorld(t, 1, nil)
	rec := w.ask("GET", "/", "", nil)
	policy := rec.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || rec.Header().Get("X-Content-Type-Options") != "nosniff" || rec.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", rec.Header())
	}
	if bound := rec.Header().Get("Strict-Transport-Security"); bound != "" {
		t.Errorf("this machine is bound to HTTPS at all ports: %s", bound)
	}
	public := newWorld(t, 1, &web.Config{Hosts: []string{"dashboard.example"}})
	if bound := public.ask("GET", "/", "", nil).Header().Get("Strict-Transport-Security"); bound != "max-age=31536000" {
		t.Errorf("a public name is bound by %q", bound)
	}
	given := newWorld(t, 1, &web.Config{CertFile: "cert.pem", KeyFile: "key.pem"})
	for host, want := range map[string]string{
		"dashboard.example": "max-age=31536000", "dashboard.example:443": "max-age=31536000",
		"dashboard.example:8443": "", "localhost": "", "pod.localhost": "", "192.0.2.1": "", "[2001:db8::1]": "", "machine": "",
	} {
		rec := given.ask("GET", "/", "", func(r *http.Request) { r.Host = host })
		if bound := rec.Header().Get("Strict-Transport-Security"); bound != want {
			t.Errorf("with a given certificate %s is bound by %q, want %q", host, bound, want)
		}
	}
	page := rec.Body.String()
	for _, bad := range []string{"<script>", " style=", " onclick=", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
}
