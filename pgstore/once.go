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

// once runs one statement in a transaction of its own, in one round trip. A
// lock timeout of 0 means that of the session. With dest it scans the only
// row, and returns [pgx.ErrNoRows] if there is none.
func once(ctx context.Context, conn *pgx.Conn, lockTimeout time.Duration, sql string, args []any, dest ...any) (pgconn.CommandTag, error) {
	var b pgx.Batch
	b.BeginTx(readCommitted)
	skip := 1
	if lockTimeout > 0 {
		b.Queue(`SELECT set_config('lock_timeout', $1, true)`, milliseconds(lockTimeout))
		skip++
	}
	b.Queue(sql, args...)
	b.Queue(`COMMIT`)
	return finish(conn.SendBatch(ctx, &b), skip, dest)
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
