package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections a server has at a time, and maxStrangers how
	// many of one address (IPv6: of one /64) that have not sent an authenticated request.
	maxConnections = 256
	maxStrangers   = 32
	// strangerIdle is how long such a connection may live without a request.
	strangerIdle = 15 * time.Second
)

// connections bounds the connections of a server. Those that have not authenticated give
// way to newer ones, the oldest first, of the same address if that has too many. So nobody
// can keep others out by holding connections.
type connections struct {
	net.Listener

	mu        sync.Mutex
	open      int
	strangers []*connection // oldest first
}

// connection is one that the listener has accepted.
type connection struct {
	net.Conn
	of    *connections
	from  netip.Prefix
	timer *time.Timer // closes a stranger that is idle
	// gone and known are guarded by connections.mu: it is closed; it is no stranger.
	gone, known bool
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
	c := &connection{Conn: accepted, of: l}
	if at, ok := accepted.RemoteAddr().(*net.TCPAddr); ok {
		c.from = network(at.AddrPort().Addr())
	}
	l.mu.Lock()
	var evicted *connection
	if same := l.strangersOf(c.from); len(same) >= maxStrangers {
		evicted = same[0]
	} else if l.open >= maxConnections {
		if len(l.strangers) == 0 {
			l.mu.Unlock()
			return nil, false
		}
		evicted = l.strangers[0]
	}
	if evicted != nil {
		l.remove(evicted)
	}
	l.open++
	l.strangers = append(l.strangers, c)
	c.timer = time.AfterFunc(strangerIdle, func() { _ = c.Close() })
	l.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	return c, true
}

// strangersOf returns the strangers of an address. The lock is held.
func (l *connections) strangersOf(from netip.Prefix) (same []*connection) {
	for _, c := range l.strangers {
		if c.from == from {
			same = append(same, c)
		}
	}
	return same
}

// remove takes a connection out of the books. The lock is held.
func (l *connections) remove(c *connection) {
	if c.gone {
		return
	}
	c.gone = true
	c.timer.Stop()
	l.open--
	l.forget(c)
}

// forget removes a connection from the strangers. The lock is held.
func (l *connections) forget(c *connection) {
	for i, s := range l.strangers {
		if s == c {
			l.strangers = append(l.strangers[:i:i], l.strangers[i+1:]...)
			return
		}
	}
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// authenticated notes that a request of the connection has authenticated.
func (c *connection) authenticated() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.known || c.gone {
		return
	}
	c.known = true
	c.timer.Stop()
	c.of.forget(c)
}

// requested notes a request of the connection.
func (c *connection) requested() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.known && !c.gone {
		c.timer.Reset(strangerIdle)
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
