package httpjson

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale/internal/httpfetch"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestNumbers(t *testing.T) {
	const document = `{"waiting": 42, "queues": [{"n": 1}, {"n": 2.5e3}], "a/b": {"c~d": -1}, "": 7, "big": 1e999, "text": "42", "null": null}`
	for _, c := range []struct {
		path, want string
	}{
		{"/waiting", "42"},
		{"/queues/1/n", "2500"},
		{"/a~1b/c~0d", "-1"},
		{"/", "7"},
		{"/queues/2/n", "has nothing at \"/queues/2/n\""},
		{"/queues/01/n", "has nothing at"},
		{"/queues/-/n", "has nothing at"},
		{"/waiting/x", "has nothing at"},
		{"/none", "has nothing at"},
		{"/text", "is not a number"},
		{"/null", "is not a number"},
		{"", "is not a number"},
		{"/big", "is too large"},
	} {
		p, err := parsePointer(c.path)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v, err := p.number([]byte(document)); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(v)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("at %q: %s, want %s", c.path, got, c.want)
		}
	}
	if _, err := (pointer{}).number([]byte("42 43")); err == nil {
		t.Error("two documents are read as one")
	}
	if v, err := (pointer{}).number([]byte(" 42\n")); err != nil || v != 42 {
		t.Errorf("a bare number: %v, %v", v, err)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ url, path, want string }{
		{"ftp://host/x", "", "http:// or https://"},
		{"http:///x", "", "and a host"},
		{"http://host", "waiting", "starts with /"},
		{"http://host", "/a~2", "~ must be followed by 0 or 1"},
	} {
		if _, err := New(c.url, c.path, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s at %q: %v", c.url, c.path, err)
		}
	}
}

func TestEndpoint(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.RawQuery != "token=secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"waiting": 42}`)
	})
	s, err := New(at+"/stats?token=secret", "/waiting", &Config{Header: http.Header{"authorization": {"Bearer secret"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Read(t.Context()); err != nil || r.Value != 42 {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestFailures: errors name the endpoint and the cause, without secrets.
func TestFailures(t *testing.T) {
	hold := make(chan struct{})
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		case "/long":
			_, _ = w.Write(make([]byte, httpfetch.MaxBody+1))
		case "/html":
			fmt.Fprint(w, "<html>")
		case "/slow":
			<-hold
		}
	})
	t.Cleanup(func() { close(hold) })
	for _, c := range []struct{ url, want string }{
		{at + "/refused", "/refused: HTTP 403 (Forbidden)"},
		{at + "/long", "larger than 1048576 bytes"},
		{at + "/html", "not JSON"},
		{at + "/slow", "deadline exceeded"},
		{"http://127.0.0.1:1/gone", "connection refused"}, // no system gives this port to a server that asks for any
	} {
		within := time.Minute
		if strings.HasSuffix(c.url, "/slow") {
			within = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		s, err := New(strings.Replace(c.url, "http://", "http://user:hunter2@", 1)+"?token=hunter2", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Read(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), strings.TrimPrefix(c.url, "http://")) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}

func FuzzNumber(f *testing.F) {
	f.Add("/a/0", `{"a":[1]}`)
	f.Add("", "1e9")
	f.Add("/~01", `{"~1":null}`)
	f.Fuzz(func(t *testing.T, path, document string) {
		p, err := parsePointer(path)
		if err != nil {
			return
		}
		if v, err := p.number([]byte(document)); err == nil && v != v {
			t.Errorf("%q has NaN at %q", document, path)
		}
	})
}
