package interop

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/selfsigned"
)

// Front accepts TLS connections for names of Azure's services, and forwards each to the server
// behind the name. Clients that insist on such names and on the services' ports are led to its
// one address.
type Front struct {
	// Address is that of the front.
	Address string
	// Certificate is for all names, in PEM.
	Certificate []byte
	listener    net.Listener
	wait        sync.WaitGroup
	mu          sync.Mutex
	conns       map[net.Conn]bool
}

// Dial connects to a server.
type Dial func() (net.Conn, error)

// StartFront starts a front for the servers, by name. It ends with the test.
func StartFront(t *testing.T, servers map[string]Dial) *Front {
	t.Helper()
	names := make([]string, 0, len(servers))
	for name := range servers {
		names = append(names, name)
	}
	now := time.Now()
	cert, err := selfsigned.New(&selfsigned.Config{CommonName: "front", Hosts: names, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), Root: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert.Certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{Address: l.Addr().String(), Certificate: cert.CertPEM, listener: l, conns: make(map[net.Conn]bool)}
	f.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.wait.Go(func() { f.forward(c.(*tls.Conn), servers) })
		}
	})
	t.Cleanup(f.close)
	return f
}

func (f *Front) close() {
	f.listener.Close()
	f.mu.Lock()
	for c := range f.conns {
		c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.wait.Wait()
}

// track closes the connection with the front. It returns false if the front is closed.
func (f *Front) track(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return false
	}
	f.conns[c] = true
	return true
}

func (f *Front) untrack(c net.Conn) {
	c.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// forward copies both ways until either side ends.
func (f *Front) forward(client *tls.Conn, servers map[string]Dial) {
	defer f.untrack(client)
	if !f.track(client) || client.Handshake() != nil {
		return
	}
	dial := servers[client.ConnectionState().ServerName]
	if dial == nil {
		return
	}
	server, err := dial()
	if err != nil {
		return
	}
	defer f.untrack(server)
	if !f.track(server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		client.Close()
	})
	_, _ = io.Copy(server, client)
	server.Close()
	back.Wait()
}
