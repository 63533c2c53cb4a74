package httpfetch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silence is a server that never answers.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestUnanswered: a request that is never answered fails, also without a deadline of
// its caller.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://metrics/x?token=hunter2", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = Do(&http.Client{Transport: silence{}}, r)
		if err == nil || !strings.Contains(err.Error(), "GET http://metrics/x: no answer within 30s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != Timeout {
			t.Errorf("took %v", took)
		}
	})
}

// TestRedirect: a redirect is an error that names where it leads, and no request goes
// there: the headers may hold secrets, and a login page would answer 200.
func TestRedirect(t *testing.T) {
	var followed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer elsewhere.Close()
	var location string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusFound)
	}))
	defer server.Close()
	for _, c := range []struct{ location, want string }{
		{elsewhere.URL + "/login?state=hunter2", "HTTP 302 (Found): it redirects to " + elsewhere.URL + "/login, which is not followed: write the final URL"},
		{"/login", "it redirects to " + server.URL + "/login, which"},
		{"/" + strings.Repeat("x", 5000), "…, which is not"},
		{"", "/x: HTTP 302 (Found)"},
	} {
		location = c.location
		for _, client := range []*http.Client{nil, {}} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/x", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = Do(client, r)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 500 {
				t.Errorf("to %.60s: got %v\nwant %s", c.location, err, c.want)
			}
		}
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("%d requests went to the other server", n)
	}
}
