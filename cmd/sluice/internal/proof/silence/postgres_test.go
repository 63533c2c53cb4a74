//go:build linux

package silence

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/netns"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
)

// The cable of one of two network namespaces, in which half of the connections to PostgreSQL are,
// is unplugged while a step uses one of them. Leases and the other connections work.
func TestPostgres(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	network, err := netns.New(2)
	if err != nil {
		t.Skipf("cannot create network namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, inHandler := range map[string]bool{"in the handler": true, "at the COMMIT": false} {
		t.Run(name, func(t *testing.T) {
			s, sockets := namespaced(t, network)
			if _, err := sockets.direct.Exec(t.Context(), `CREATE TABLE effects (n bigint)`); err != nil {
				t.Fatal(err)
			}
			w := newWatch(t)
			var batches atomic.Int64
			handler := func(ctx context.Context, tx pgx.Tx, b sluice.Batch) error {
				strike := batches.Add(1) == 20
				if strike && inHandler {
					sockets.unplug(t, tx.Conn())
					w.strike()
				}
				_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, b.Events[0].Sequence)
				if strike && !inHandler {
					sockets.unplug(t, tx.Conn())
					w.strike()
				}
				return err
			}
			measure(t, w, filling(t), new(sluicetest.Leases), sluice.Transactional(s, handler), nil)
			for _, ns := range network.Namespaces {
				if err := ns.Plug(); err != nil {
					t.Fatal(err)
				}
			}
			var rows, distinct int
			if err := sockets.direct.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT n) FROM effects`).Scan(&rows, &distinct); err != nil || rows != distinct {
				t.Errorf("%d rows of %d batches, %v", rows, distinct, err)
			}
		})
	}
}

// sockets opens the connections of a pool in two network namespaces in turn.
type sockets struct {
	direct     *pgxpool.Pool // outside of the namespaces
	network    *netns.Network
	mu         sync.Mutex
	namespaces map[string]*netns.Namespace // by local address
	next       int
}

// namespaced opens a store over such a pool. PostgreSQL itself listens on the loopback device only.
func namespaced(t *testing.T, network *netns.Network) (*pgstore.Store, *sockets) {
	t.Helper()
	url := pgtest.Database(t)
	cfg := &pgstore.Config{LeaseFor: leaseFor, MaxConns: 4}
	direct, err := pgstore.Connect(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	pc := direct.Config()
	link, err := tcplink.New(net.JoinHostPort(network.Host, "0"), net.JoinHostPort(pc.ConnConfig.Host, fmt.Sprint(pc.ConnConfig.Port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	for _, ns := range network.Namespaces {
		awaitRoute(t, ns, link.Addr())
	}
	d := &sockets{direct: direct, network: network, namespaces: make(map[string]*netns.Namespace)}
	dial := pc.ConnConfig.DialFunc
	pc.ConnConfig.DialFunc = func(ctx context.Context, proto, _ string) (net.Conn, error) {
		return d.dial(ctx, proto, link.Addr(), dial)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := pgstore.New(t.Context(), pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, d
}

// awaitRoute waits until an address can be reached: a cable that was plugged in again takes a
// moment.
func awaitRoute(t *testing.T, ns *netns.Namespace, address string) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		err = ns.Do(func() error {
			conn, err := net.DialTimeout("tcp", address, time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err == nil {
			return
		}
	}
	t.Fatalf("no route: %v", err)
}

func (d *sockets) dial(ctx context.Context, proto, address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (conn net.Conn, err error) {
	d.mu.Lock()
	ns := d.network.Namespaces[d.next%len(d.network.Namespaces)]
	d.next++
	d.mu.Unlock()
	err = ns.Do(func() error {
		conn, err = dial(ctx, proto, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.namespaces[conn.LocalAddr().String()] = ns
	return conn, nil
}

// unplug unplugs the cable that a connection uses.
func (d *sockets) unplug(t *testing.T, conn *pgx.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.namespaces[conn.PgConn().Conn().LocalAddr().String()].Unplug(); err != nil {
		t.Error(err)
	}
}
