// Package connectproxy is an HTTP proxy for tests, which tunnels connections (CONNECT).
package connectproxy

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy is a proxy that runs until the end of its test.
type Proxy struct {
	Addr    string       // host and port
	Tunnels atomic.Int64 // how many it has opened
}

// New starts a proxy. With a user, it demands that name and the password.
func New(t testing.TB, user, password string) *Proxy {
	p := &Proxy{}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user != "" && r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		out, err := net.Dial("tcp", r.Host)
		if r.Method != http.MethodConnect || err != nil {
			http.Error(w, "no tunnel", http.StatusBadGateway)
			return
		}
		p.Tunnels.Add(1)
		in, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			out.Close()
			return
		}
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(out, buffered); out.Close() })
		both.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		both.Wait()
	}))
	t.Cleanup(server.Close)
	p.Addr = strings.TrimPrefix(server.URL, "http://")
	return p
}
