package health_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
)

func TestProbes(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	h := health.NewProbes(&health.ProbesConfig{Details: true, Now: func() time.Time { return now }})
	probe := func(path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || w.Body.String() != text {
			t.Errorf("%s: %d %q, want %d %q", path, w.Code, w.Body, code, text)
		}
	}
	probe("/livez", 200, "ok\n")
	probe("/readyz", 503, "the lease store has not answered yet\n")
	h.Observe(driver.Observation{Kind: driver.KindListed}) // all partitions are others'
	probe("/readyz", 200, "ok\n")
	h.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0"})

	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("database\nis down")})
	probe("/readyz", 200, "ok\n")
	now = now.Add(20 * time.Second)
	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("still\ndown")})
	now = now.Add(11 * time.Second)
	h.Observe(driver.Observation{Kind: driver.KindRenewed, Partition: "0"})
	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("still")})
	probe("/readyz", 503, "failing for 31s: still\n")
	probe("/livez", 200, "ok\n")
	h.Observe(driver.Observation{Kind: driver.KindCommitted, Partition: "0"})
	probe("/readyz", 200, "ok\n")

	// One failure alone passes, also where no event shows that it has.
	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("a blip")})
	now = now.Add(31 * time.Second)
	h.Observe(driver.Observation{Kind: driver.KindRenewed, Partition: "0"})
	probe("/readyz", 200, "ok\n")

	for range 3 {
		h.Observe(driver.Observation{Kind: driver.KindFailed, Err: errors.New("lease store is down")})
		now = now.Add(40 * time.Second) // a request without an answer, and a pause
	}
	h.Observe(driver.Observation{Kind: driver.KindRenewed, Partition: "0"})
	probe("/readyz", 503, "failing for 2m0s: lease store is down\n")
	h.Observe(driver.Observation{Kind: driver.KindListed})
	probe("/readyz", 200, "ok\n")

	h.Observe(driver.Observation{Kind: driver.KindHalted, Partition: "0", Err: errors.New("retention has passed")})
	probe("/readyz", 200, "ok\npartition 0 halted, operator action required: retention has passed\n")
	h.Observe(driver.Observation{Kind: driver.KindOpened, Partition: "0"}) // which ends nothing
	probe("/readyz", 200, "ok\npartition 0 halted, operator action required: retention has passed\n")
	h.Observe(driver.Observation{Kind: driver.KindResumed, Partition: "0"})

	// A partition that is held up is named, and costs readiness once it lasts.
	hang := errors.New("handler has not returned for 30s")
	h.Observe(driver.Observation{Kind: driver.KindStalled, Partition: "0", Duration: 30 * time.Second, Err: hang})
	probe("/readyz", 200, "ok\npartition 0 stalled: handler has not returned for 30s\n")
	now = now.Add(5 * time.Minute)
	h.Observe(driver.Observation{Kind: driver.KindRenewed, Partition: "0"})
	probe("/readyz", 503, "partition 0 stalled: handler has not returned for 30s\npartition 0 stalled: handler has not returned for 30s\n")
	probe("/livez", 200, "ok\npartition 0 stalled: handler has not returned for 30s\n")
	h.Observe(driver.Observation{Kind: driver.KindResumed, Partition: "0"})
	probe("/readyz", 200, "ok\n")

	now = now.Add(61 * time.Second)
	probe("/livez", 503, "partition 0: its lease was neither renewed nor released for 1m1s\n")
	h.Observe(driver.Observation{Kind: driver.KindLost, Partition: "0"})
	probe("/livez", 200, "ok\n")

	// An outage of what keeps the leases costs them, and goes on.
	h.Observe(driver.Observation{Kind: driver.KindAcquired, Partition: "0"})
	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("down")})
	now = now.Add(25 * time.Second)
	h.Observe(driver.Observation{Kind: driver.KindFailed, Partition: "0", Err: errors.New("still down")})
	h.Observe(driver.Observation{Kind: driver.KindLost, Partition: "0"})
	probe("/readyz", 200, "ok\n")
	now = now.Add(10 * time.Second)
	h.Observe(driver.Observation{Kind: driver.KindFailed, Err: errors.New("no leases")})
	probe("/readyz", 503, "failing for 35s: no leases\n")
	h.Observe(driver.Observation{Kind: driver.KindListed})
	probe("/readyz", 200, "ok\n")

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/livez", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("another path: %d", w.Code)
	}
}

func TestCombined(t *testing.T) {
	probe := func(all health.Combined, path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		all.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || w.Body.String() != text {
			t.Errorf("%s of %d: %d %q, want %d %q", path, len(all), w.Code, w.Body, code, text)
		}
	}
	// Whoever kills what has not begun has it begin for ever.
	probe(nil, "/livez", 200, "ok\n")
	probe(nil, "/readyz", 503, "no consumer has started yet\n")
	one, other := health.NewProbes(nil), health.NewProbes(&health.ProbesConfig{Details: true})
	one.Observe(driver.Observation{Kind: driver.KindListed})
	probe(health.Combined{one, other}, "/readyz", 503, "the lease store has not answered yet\n")
	other.Observe(driver.Observation{Kind: driver.KindListed})
	other.Observe(driver.Observation{Kind: driver.KindHalted, Partition: "3", Err: errors.New("recreated")})
	probe(health.Combined{one, other}, "/readyz", 200, "ok\npartition 3 halted, operator action required: recreated\n")
	probe(health.Combined{one, other}, "/", 404, "404 page not found\n")
}

// Probes are answered without authentication: they name partitions and states, and no error.
func TestProbesHideErrors(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	h := health.NewProbes(&health.ProbesConfig{Now: func() time.Time { return now }})
	secret := errors.New("connect to admin@db.internal: refused")
	h.Observe(driver.Observation{Kind: driver.KindListed})
	h.Observe(driver.Observation{Kind: driver.KindHalted, Partition: "3", Err: secret})
	h.Observe(driver.Observation{Kind: driver.KindStalled, Partition: "4", Duration: 30 * time.Second, Err: secret})
	for range 3 {
		h.Observe(driver.Observation{Kind: driver.KindFailed, Err: secret})
		now = now.Add(40 * time.Second)
	}
	for path, want := range map[string]string{
		"/livez":  "ok\npartition 3 halted, operator action required: see the log\npartition 4 stalled: see the log\n",
		"/readyz": "failing for 2m0s: see the log\npartition 3 halted, operator action required: see the log\npartition 4 stalled: see the log\n",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Body.String() != want {
			t.Errorf("%s: %q, want %q", path, w.Body, want)
		}
	}
	if err := h.Ready(); !errors.Is(err, secret) {
		t.Errorf("the program itself gets %v, want the error", err)
	}
}
