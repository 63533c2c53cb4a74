package webpage

import (
	"net/http/httptest"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		host, origin string
		allowed      bool
	}{
		{"localhost:8081", "", true},
		{"127.0.0.1", "", true},
		{"[::1]:80", "http://[::1]", true},
		{"192.168.0.7:5672", "", true},
		{"emulator:5672", "", true},
		{"db.localhost", "", true},
		{"host.docker.internal:5672", "", true},
		{"emulator.tests.svc.cluster.local.", "", true},
		{"host.docker.internal", "http://evil.example", false},
		{"internal.evil.example", "", false},
		{"evilinternal.example", "", false},
		{"localhost:80", "http://localhost:3000", true},
		{"evil.example:80", "", false},
		{"evil.example:80", "http://evil.example", false},
		{"evil.example.", "", false},
		{"localhost.evil.example", "", false},
		{"127.0.0.1.evil.example", "", false},
		{"", "", false},
		{"localhost", "http://evil.example", false},
		{"localhost", "null", false},
		{"localhost", "http://%", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if err := Check(r); (err == nil) != c.allowed {
			t.Errorf("host %q, origin %q: %v", c.host, c.origin, err)
		}
	}
}
