// Package roundtrips counts the round trips of a client on the wire.
package roundtrips

import (
	"context"
	"net"
	"sync/atomic"
)

// Counter counts what is sent over the connections that it dials. A round trip is what a client
// sends before the server's next answer, however many packets it has.
type Counter struct {
	trips, bytes atomic.Int64
}

// Dial opens a connection that is counted.
func (c *Counter) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, counter: c}, nil
}

// Take returns the round trips that have been answered since the last call, and the bytes that were
// sent.
func (c *Counter) Take() (trips, bytes int64) { return c.trips.Swap(0), c.bytes.Swap(0) }

type counted struct {
	net.Conn
	counter *Counter
	asked   atomic.Bool // something was sent after the last answer
}

func (c *counted) Write(p []byte) (int, error) {
	c.asked.Store(true)
	n, err := c.Conn.Write(p)
	c.counter.bytes.Add(int64(n))
	return n, err
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.asked.Swap(false) {
		c.counter.trips.Add(1)
	}
	return n, err
}
