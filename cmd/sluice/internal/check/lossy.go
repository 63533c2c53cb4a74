package check

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// lossyConns are connections to a server. Once armed, they lose the reply to the nth request.
type lossyConns struct {
	nth    int64
	counts func(message []byte) bool // whether a message is a request; nil: each is
	left   atomic.Int64              // requests until that one; below 1: not armed
}

func (l *lossyConns) arm() { l.left.Store(l.nth) }

// armAfter calls end, and arms the connections if that succeeds.
func (l *lossyConns) armAfter(end func() error) func() error {
	return func() error {
		if end != nil {
			if err := end(); err != nil {
				return err
			}
		}
		l.arm()
		return nil
	}
}

// dial opens a connection.
func (l *lossyConns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, conns: l}, nil
}

// lossyConn sends the nth request, waits for the reply, and breaks in place of returning it.
type lossyConn struct {
	net.Conn
	conns  *lossyConns
	losing atomic.Bool
}

var errLost = errors.New("the reply was lost on purpose")

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.conns.counts == nil || c.conns.counts(b) {
		if c.conns.left.Add(-1) == 0 {
			c.losing.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.losing.Load() {
		_ = c.Conn.Close()
		if err == nil {
			err = errLost
		}
		return 0, err
	}
	return n, err
}
