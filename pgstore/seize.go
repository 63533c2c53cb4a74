package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
)

const (
	// seizeWithin bounds the wait for a checkpoint's row while the sessions
	// before it are being ended, in lock timeouts.
	seizeWithin = 10
	// seizeEvery is the time between two queries for the blocking sessions.
	seizeEvery = 50 * time.Millisecond
)

// seize runs a statement on a checkpoint's row. It waits for the lock timeout first, or for a
// quarter of the time that ctx leaves, and then terminates the sessions of its own user that hold
// the row. With a lease, it fails instead if the checkpoint belongs to a later claim.
func (s *Store) seize(ctx context.Context, lease *driver.Lease, sql string, args []any, dest ...any) error {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = once(ctx, conn.Conn(), limits{s.lockTimeout(ctx), s.cfg.LeaseFor}, s.sql.text(sql), args, dest...)
	if !lockTimedOut(err) {
		return err
	}
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		return err
	}
	if lease != nil {
		w, err := s.current(ctx, conn.Conn(), *lease)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // a rival is just creating it
		case err != nil:
			return err
		case w.Epoch > lease.Epoch || w.Epoch == lease.Epoch && w.Owner != lease.Owner:
			return &driver.FencedError{Partition: lease.Partition, Epoch: w.Epoch, Owner: w.Owner}
		}
	}
	return s.overrule(ctx, conn.Conn(), lease, s.sql.text(sql), args, dest)
}

// lockTimeout returns how long a statement waits for a row before the session that holds it is
// terminated: LockTimeout, or less if ctx leaves no time for that.
func (s *Store) lockTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return s.cfg.LockTimeout
	}
	return max(time.Millisecond, min(s.cfg.LockTimeout, time.Until(deadline)/4))
}

// forcibly is [once] in two round trips: the first learns the number of the
// session that is going to wait, without holding anything.
func (s *Store) forcibly(ctx context.Context, conn *pgx.Conn, sql string, args, dest []any) error {
	var b pgx.Batch
	b.BeginTx(readCommitted)
	b.Queue(`SELECT pg_backend_pid(), set_config('lock_timeout', $1, true)`, milliseconds(seizeWithin*s.cfg.LockTimeout))
	br := conn.SendBatch(ctx, &b)
	var pid int32
	_, err := br.Exec()
	if err == nil {
		err = br.QueryRow().Scan(&pid, nil)
	}
	if cerr := br.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}

	watch, stop := context.WithCancel(ctx)
	var refusal error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		refusal = endBlockers(watch, s.control, pid)
	}()
	b = pgx.Batch{}
	b.Queue(sql, args...)
	b.Queue(`COMMIT`)
	_, err = finish(conn.SendBatch(ctx, &b), 0, dest)
	stop()
	<-ended
	if refusal != nil && (lockTimedOut(err) || err != nil && ctx.Err() != nil) {
		err = fmt.Errorf("%w: %w", err, refusal)
	}
	return err
}

// blocker is a session that holds a checkpoint.
type blocker struct {
	PID         int32
	User        string
	Application string
	Own         bool
}

// endBlockers ends the sessions that pid waits for, repeatedly until ctx
// ends. It returns why it did not end one, nil if there was none such.
func endBlockers(ctx context.Context, pool *pgxpool.Pool, pid int32) (refusal error) {
	tick := time.NewTicker(seizeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := endBlockersOnce(ctx, pool, pid); err != nil && ctx.Err() == nil {
			refusal = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return refusal
}

func endBlockersOnce(ctx context.Context, pool *pgxpool.Pool, pid int32) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return fmt.Errorf("look for the session that holds the checkpoint: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, postgres.Blockers, pid) // CollectRows returns the error
	blockers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[blocker])
	if err != nil {
		return fmt.Errorf("look for the session that holds the checkpoint: %w", err)
	}
	var refusal error
	for _, b := range blockers {
		if b.PID == 0 {
			refusal = postgres.ErrPrepared
			continue
		}
		if !b.Own { // it may be no consumer's
			refusal = fmt.Errorf("session %d of user %s (application %q) holds the checkpoint, and is not of this claim's user: end it by SELECT pg_terminate_backend(%[1]d), or wait until its transaction ends", b.PID, b.User, b.Application)
			continue
		}
		if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend($1)`, b.PID); err != nil {
			refusal = fmt.Errorf("end session %d of user %s (application %q), which holds the checkpoint: %w", b.PID, b.User, b.Application, err)
		}
	}
	return refusal
}

func lockTimedOut(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "55P03"
}
