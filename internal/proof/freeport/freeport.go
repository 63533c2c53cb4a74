// Package freeport finds ports for servers that go away, or start again, during a test.
package freeport

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Listen listens on a free port of 127.0.0.1. It is none of those that systems give to outgoing
// connections, and to listeners that name no port: a server that starts again must find its port
// free, nobody else may answer there meanwhile, and a client that dials then must not be connected
// with itself.
func Listen() (l net.Listener, err error) {
	for range 100 {
		n, rerr := rand.Int(rand.Reader, big.NewInt(17_000))
		if rerr != nil {
			return nil, rerr
		}
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15_000+n.Int64())); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

// Unstarted is [httptest.NewUnstartedServer] on such a port.
func Unstarted(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	return &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
}
