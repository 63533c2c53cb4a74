package check

import (
	"context"
	"database/sql"
	"net"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sqlstore"
)

// storeDatabase is a database of package sqlstore.
type storeDatabase struct {
	store   *sqlstore.Store
	db      *sql.DB // over the user's address, for what the checks make; nil: a file
	table   string  // of the effects
	rows    string  // the table of the sessions; empty: there are none
	now     string  // SELECT of the server's clock
	durably func(context.Context, *sql.DB) (found, problem string, err error)
	// again opens the store once more; nil: there is no server.
	again func(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*sqlstore.Store, error)
}

func (d *storeDatabase) leases() driver.LeaseStore           { return d.store.Leases() }
func (d *storeDatabase) deadLetters() driver.DeadLetterStore { return d.store }

func (d *storeDatabase) claim(ctx context.Context, lease driver.Lease) (driver.Checkpoint, error) {
	return d.store.Claim(ctx, lease, incarnation)
}

func (d *storeDatabase) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	return d.commitTo(ctx, d.store, step, effects, end)
}

func (d *storeDatabase) commitTo(ctx context.Context, store *sqlstore.Store, step driver.Step, effects []int64, end func() error) error {
	return store.Commit(ctx, step, func(ctx context.Context, tx *sqlstore.Tx) error {
		rows := make([][]any, len(effects))
		for i, id := range effects {
			rows[i] = []any{id}
		}
		if err := tx.Insert(ctx, d.table, []string{"id"}, rows); err != nil {
			return err
		}
		if end != nil {
			return end()
		}
		return nil
	})
}

func (d *storeDatabase) effects(ctx context.Context) (list []int64, err error) {
	rows, err := d.store.DB().QueryContext(ctx, "SELECT id FROM "+d.table+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		list = append(list, id)
	}
	return list, rows.Err()
}

func (d *storeDatabase) clock(ctx context.Context) (now time.Time, err error) {
	err = d.store.DB().QueryRowContext(ctx, d.now).Scan(&now)
	return now, err
}

func (d *storeDatabase) ping(ctx context.Context) error {
	var one int
	return d.store.DB().QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

func (d *storeDatabase) durable(ctx context.Context) (found, problem string, err error) {
	return d.durably(ctx, d.store.DB())
}

func (d *storeDatabase) sessions() (*sql.DB, string) { return d.store.DB(), d.rows }

func (d *storeDatabase) close() {
	if d.store != nil {
		_ = d.store.Close()
		d.store = nil
	}
}

func (d *storeDatabase) closeAll() {
	d.close()
	if d.db != nil {
		_ = d.db.Close()
	}
}

func (d *storeDatabase) losing(ctx context.Context, nth int) (lossy, error) {
	if d.again == nil {
		return nil, nil
	}
	l := &lossyStore{database: d, conns: lossyConns{nth: int64(nth)}}
	var err error
	l.own, err = d.again(context.WithoutCancel(ctx), l.conns.dial)
	return l, err
}

// lossyStore is the same database over connections that lose a reply.
type lossyStore struct {
	database *storeDatabase
	own      *sqlstore.Store
	conns    lossyConns
}

func (l *lossyStore) commit(ctx context.Context, step driver.Step, effects []int64, end func() error) error {
	return l.database.commitTo(ctx, l.own, step, effects, l.conns.armAfter(end))
}

func (l *lossyStore) close() { _ = l.own.Close() }
