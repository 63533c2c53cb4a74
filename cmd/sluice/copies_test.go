package main_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestCaughtUpWithCopies: a run until caught up has copied its dead letters, or says how many it
// has not.
func TestCaughtUpWithCopies(t *testing.T) {
	t.Parallel()
	var copies, status atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status.Load() == http.StatusOK {
			n, _ := strconv.ParseInt(r.Header.Get("Sluice-Count"), 10, 64)
			copies.Add(n)
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer srv.Close()
	url := databases["sqlite"](t)
	_, connection := serve(t, 2)
	env := environment(connection, url, "COPIES="+srv.URL)
	config := changed(t, slices.Concat(longLease, []string{"\ndatabase:", "\ndead_letters: {copy_to: {http: {url: \"${COPIES}\"}}}\ndatabase:"})...)
	must(t, "", env, "send", "--hub", "flights", writeLines(t, []string{`{"origin":"SAN"}`, `{"origin":"LAX"}`, `{"origin":"SFO"}`, sane}))
	status.Store(http.StatusServiceUnavailable)
	code, _, errs := invoke(t, "", env, "run", config, "--until-caught-up", "--within", "5s")
	if code != 1 || !strings.Contains(errs, "not caught up within 5s: 3 dead letters are not copied: check the target of dead_letters.copy_to") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	status.Store(http.StatusOK)
	must(t, "", env, "run", config, "--until-caught-up")
	if n := copies.Load(); n != 3 {
		t.Errorf("%d copies of 3 dead letters", n)
	}
}
