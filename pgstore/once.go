package pgstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// readCommitted is how every transaction of the store begins, whatever the
// role's defaults are.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// limits bound a transaction of the store.
type limits struct {
	lock time.Duration // how long it waits for a lock; 0: the session's own limit
	idle time.Duration // how long the server waits for its next statement, of which the network may have lost a part
}

func (cfg *Config) limits() limits { return limits{cfg.LockTimeout, cfg.LeaseFor} }

// queue sets the limits for the transaction that a batch has begun.
func (l limits) queue(b *pgx.Batch) {
	if l.lock > 0 {
		b.Queue(limitsSQL, milliseconds(l.lock), milliseconds(l.idle))
		return
	}
	b.Queue(`SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, milliseconds(l.idle))
}

// once runs one statement in a transaction of its own, in one round trip. With dest it scans the
// only row, and returns [pgx.ErrNoRows] if there is none.
func once(ctx context.Context, conn *pgx.Conn, limits limits, sql string, args []any, dest ...any) (pgconn.CommandTag, error) {
	var b pgx.Batch
	b.BeginTx(readCommitted)
	limits.queue(&b)
	b.Queue(sql, args...)
	b.Queue(`COMMIT`)
	return finish(conn.SendBatch(ctx, &b), 2, dest)
}

// finish reads the results of a batch: those to skip, then the statement's,
// then the COMMIT's.
func finish(br pgx.BatchResults, skip int, dest []any) (tag pgconn.CommandTag, err error) {
	defer func() {
		// What is left on the connection after an error makes the pool drop it.
		if cerr := br.Close(); err == nil {
			err = cerr
		}
	}()
	for range skip {
		if _, err := br.Exec(); err != nil {
			return tag, err
		}
	}
	var none error
	if len(dest) > 0 {
		err = br.QueryRow().Scan(dest...)
		if errors.Is(err, pgx.ErrNoRows) {
			none, err = err, nil
		}
	} else {
		tag, err = br.Exec()
	}
	if err != nil {
		return tag, err
	}
	if _, err := br.Exec(); err != nil {
		return tag, err
	}
	return tag, none
}

// milliseconds formats d for PostgreSQL's settings: at least 1, because 0 means without limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}
