package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections a server has at a time, and
	// maxUnauthenticated how many of one address (IPv6: of one /64) that have not sent an
	// authenticated request.
	maxConnections     = 256
	maxUnauthenticated = 32
	// unauthenticatedIdle is how long such a connection may be open without a request.
	unauthenticatedIdle = 15 * time.Second
)

// connections bounds the connections of a server. At the limit it closes an unauthenticated
// one for a new one: the oldest, of the same address if that has too many. So no client can
// keep others out by holding connections.
type connections struct {
	net.Listener

	mu              sync.Mutex
	open            int
	unauthenticated []*connection // oldest first
}

// connection is one that the listener has accepted.
type connection struct {
	net.Conn
	connections *connections
	network     netip.Prefix
	timer       *time.Timer // closes an unauthenticated connection that is idle
	// connections.mu guards these.
	closed        bool
	authenticated bool
}

// Accept admits the next connection.
func (l *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.admit(accepted); ok {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// admit makes room for a connection. It returns false if all others have authenticated.
func (l *connections) admit(accepted net.Conn) (*connection, bool) {
	c := &connection{Conn: accepted, connections: l}
	if at, ok := accepted.RemoteAddr().(*net.TCPAddr); ok {
		c.network = network(at.AddrPort().Addr())
	}
	l.mu.Lock()
	var evicted *connection
	if same := l.unauthenticatedOf(c.network); len(same) >= maxUnauthenticated {
		evicted = same[0]
	} else if l.open >= maxConnections {
		if len(l.unauthenticated) == 0 {
			l.mu.Unlock()
			return nil, false
		}
		evicted = l.unauthenticated[0]
	}
	if evicted != nil {
		l.remove(evicted)
	}
	l.open++
	l.unauthenticated = append(l.unauthenticated, c)
	c.timer = time.AfterFunc(unauthenticatedIdle, func() { _ = c.Close() })
	l.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	return c, true
}

// unauthenticatedOf returns the unauthenticated connections of an address. The lock is held.
func (l *connections) unauthenticatedOf(from netip.Prefix) (same []*connection) {
	for _, c := range l.unauthenticated {
		if c.network == from {
			same = append(same, c)
		}
	}
	return same
}

// remove notes that a connection is closed. The lock is held.
func (l *connections) remove(c *connection) {
	if c.closed {
		return
	}
	c.closed = true
	c.timer.Stop()
	l.open--
	l.forget(c)
}

// forget removes a connection from the unauthenticated ones. The lock is held.
func (l *connections) forget(c *connection) {
	if i := slices.Index(l.unauthenticated, c); i >= 0 {
		l.unauthenticated = slices.Delete(l.unauthenticated, i, i+1)
	}
}

// Close closes the connection.
func (c *connection) Close() error {
	c.connections.mu.Lock()
	c.connections.remove(c)
	c.connections.mu.Unlock()
	return c.Conn.Close()
}

// noteAuthenticated notes that a request of the connection has authenticated.
func (c *connection) noteAuthenticated() {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	if c.authenticated || c.closed {
		return
	}
	c.authenticated = true
	c.timer.Stop()
	c.connections.forget(c)
}

// noteRequest notes a request of the connection.
func (c *connection) noteRequest() {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	if !c.authenticated && !c.closed {
		c.timer.Reset(unauthenticatedIdle)
	}
}

type connectionKey struct{}

// withConnection is http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf returns the connection of a request, nil if it did not come over one.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}
