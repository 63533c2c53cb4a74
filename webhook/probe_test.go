package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A probe is a request without events, signed and authorized as the others.
func TestProbe(t *testing.T) {
	answer := func(w http.ResponseWriter) {}
	var body string
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, header = string(text), r.Header
		answer(w)
	}))
	t.Cleanup(srv.Close)
	for format, want := range map[Format]string{CloudEvents: "[]", JSON: "[]", JSONLines: ""} {
		s := open(t, srv.URL, &Config{Format: format, Keys: [][]byte{[]byte("0123456789abcdef01234567")}, Header: http.Header{"Authorization": {"Bearer topsecret"}}})
		if err := s.Probe(t.Context()); err != nil {
			t.Errorf("format %v: %v", format, err)
		}
		if body != want || header.Get("Sluice-Count") != "0" || header.Get("Webhook-Signature") == "" || header.Get("Authorization") != "Bearer topsecret" || header.Get("Content-Type") != format.contentType() {
			t.Errorf("format %v: body %q, headers %v", format, body, header)
		}
	}
	s := open(t, srv.URL, nil)
	for status, want := range map[int]string{401: "401 Unauthorized: check the key", 302: "redirects are not followed", 400: "400 Bad Request"} {
		answer = func(w http.ResponseWriter) { w.WriteHeader(status) }
		if err := s.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	answer = func(w http.ResponseWriter) { io.WriteString(w, `{"failed":[{"index":0}]}`) }
	_, is := errors.AsType[*Error](s.Probe(t.Context()))
	if !is {
		t.Error("an answer that names an event of none is accepted")
	}
}
