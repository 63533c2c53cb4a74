package web_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// clientAt is a client whose connections come from an address of this machine.
func clientAt(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, to)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
}

// The dashboard can be reached while one address holds a thousand connections: idle ones of
// HTTP/2, ones that send no TLS, and ones that stop in the middle of a request. Who has
// signed in keeps the connection.
func TestReachableUnderACrowd(t *testing.T) {
	cfg := locked
	w := newWorld(t, 1, &cfg)
	_, base := w.serve()
	host := strings.TrimSuffix(strings.TrimPrefix(base, "https://"), "/")
	get := func(client *http.Client, path string) (status int, at string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		bearer(cfg.Token)(r)
		so, err := client.Do(r)
		if err != nil {
			t.Fatalf("not reached: %v", err)
		}
		defer so.Body.Close()
		return so.StatusCode, so.Proto
	}
	early := clientAt("127.0.0.2")
	defer early.CloseIdleConnections()
	var dials int
	transport := early.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		dials++
		return dial(ctx, network, to)
	}
	if status, _ := get(early, "api/dead-letters"); status != http.StatusOK {
		t.Fatalf("before the crowd: %d", status)
	}

	var mu sync.Mutex
	var crowd []net.Conn
	defer func() {
		for _, c := range crowd {
			c.Close()
		}
	}()
	var arriving sync.WaitGroup
	for i := range 8 {
		arriving.Go(func() {
			for n := range 125 {
				c, err := net.Dial("tcp", host)
				if err != nil {
					continue
				}
				mu.Lock()
				crowd = append(crowd, c)
				mu.Unlock()
				if (i+n)%4 == 0 {
					continue // sends nothing
				}
				proto := "h2"
				if (i+n)%4 == 1 {
					proto = "http/1.1"
				}
				tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}})
				_ = c.SetDeadline(time.Now().Add(2 * time.Second))
				if tc.Handshake() != nil {
					continue
				}
				if proto == "h2" {
					_, _ = tc.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
				} else {
					_, _ = tc.Write([]byte("POST /sign-in HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 1000\r\n\r\n"))
				}
			}
		})
	}
	arriving.Wait()
	if len(crowd) != 1000 {
		t.Errorf("%d hostile connections, want 1,000", len(crowd))
	}
	late := clientAt("127.0.0.3")
	defer late.CloseIdleConnections()
	if status, _ := get(late, "api/dead-letters"); status != http.StatusOK {
		t.Errorf("from another address: %d", status)
	}
	if status, _ := get(early, "api/dead-letters"); status != http.StatusOK || dials != 1 {
		t.Errorf("who had signed in: %d over connection %d, want the first", status, dials)
	}
}
