package postgres

import (
	"context"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// dialer opens the sockets of a pool. They detect within the lease's length that the server is
// gone, and a connection that was given up is closed as quickly.
type dialer struct {
	net.Dialer
	connect time.Duration // how long it may take to set a connection up
	giveUp  time.Duration // how long a connection that was given up may stay open
}

func newDialer(connect, leaseFor time.Duration) *dialer {
	d := &dialer{connect: connect, giveUp: max(leaseFor/6, time.Second)}
	d.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: d.giveUp, Interval: d.giveUp, Count: 3}
	d.Control = func(network, _ string, c syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		return limitUnacknowledged(c, 2*d.giveUp)
	}
	return d
}

// install makes connections use the dialer. A socket has a deadline until the connection is set up.
// One that serves a request to cancel is never set up and keeps the deadline; pgx would wait for
// its answer for 15 s, while the connection to be cancelled keeps its place in the pool.
func (d *dialer) install(cc *pgx.ConnConfig) {
	cc.DialFunc = d.dial
	cc.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		return conn, conn.SetDeadline(time.Time{})
	}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.connect)
	defer cancel()
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &socket{conn, d.giveUp}, conn.SetDeadline(time.Now().Add(d.connect))
}

// socket is a connection that pgx closes quickly: after an error it sets a deadline of 15 s for the
// server's answer, and the connection keeps its place in the pool until then.
type socket struct {
	net.Conn
	most time.Duration
}

// SetDeadline limits the deadline; zero is none.
func (s *socket) SetDeadline(t time.Time) error {
	if limit := time.Now().Add(s.most); t.After(limit) {
		t = limit
	}
	return s.Conn.SetDeadline(t)
}
