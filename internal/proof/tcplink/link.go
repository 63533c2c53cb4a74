// Package tcplink has a TCP proxy that tests put between a client and a server: it resets
// connections, or drops what they carry without an error.
package tcplink

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Link is a TCP proxy between one process and one server. It is safe for
// concurrent use.
type Link struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	pairs  []*pair // oldest first
	hole   bool
	closed bool
}

// pair is one connection, from its client to its server.
type pair struct {
	client, server net.Conn
	hole           atomic.Bool // its bytes are dropped
}

// New makes a link to target, host:port, for clients that connect to
// listen, of which the port may be 0.
func New(listen, target string) (*Link, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", target, err)
	}
	link := &Link{target: target, listener: l}
	link.work.Go(link.accept)
	return link, nil
}

// Addr is where clients connect.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Reset resets every connection at both ends, and returns how many there were.
func (l *Link) Reset() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reset()
}

func (l *Link) reset() int {
	for _, p := range l.pairs {
		for _, c := range []net.Conn{p.client, p.server} {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // so that closing it sends RST
			}
			c.Close()
		}
	}
	return len(l.pairs)
}

// Swallow drops every byte from now on, in both directions; connections stay open,
// and clients can open new ones.
func (l *Link) Swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hole = true
}

// SwallowNewest drops every byte of the n newest connections from now on; they stay open. Others
// work.
func (l *Link) SwallowNewest(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pairs[max(0, len(l.pairs)-n):] {
		p.hole.Store(true)
	}
}

// Silence is a Swallow that a test ends by the function that it returns.
func (l *Link) Silence(testing.TB) (end func()) {
	l.Swallow()
	return func() { l.Recover() }
}

// NewTest is [New] on a free port, closed at the test's end.
func NewTest(t testing.TB, target string) *Link {
	t.Helper()
	l, err := New("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Recover ends a Swallow: it cuts all connections, since they have lost bytes, and
// lets new ones through. It returns how many it has cut.
func (l *Link) Recover() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hole = false
	return l.reset()
}

// Close ends all connections and waits until they have ended.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.reset()
	l.mu.Unlock()
	l.listener.Close()
	l.work.Wait()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			client.Close()
			continue
		}
		p := &pair{client: client, server: server}
		l.mu.Lock()
		l.pairs = append(l.pairs, p)
		if l.closed {
			l.reset()
		}
		l.mu.Unlock()
		var halves sync.WaitGroup
		halves.Go(func() { l.carry(p, client, server) })
		halves.Go(func() { l.carry(p, server, client) })
		l.work.Go(func() {
			halves.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.pairs = slices.DeleteFunc(l.pairs, func(other *pair) bool { return other == p })
		})
	}
}

// carry copies one direction until either end is closed, and closes both.
func (l *Link) carry(p *pair, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.hole.Load() && !l.swallowing() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) swallowing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hole
}
