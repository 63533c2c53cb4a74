package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/postgres"
)

// seizeEvery is the time between two queries for the sessions that hold a row.
const seizeEvery = 50 * time.Millisecond

// seize runs a transaction that changes a checkpoint's row, where the database lets one session end
// another. If other sessions hold the row for longer than half of the lock time-out, or than a
// quarter of the time that ctx leaves, those of the store's own user are ended: one may belong to
// an owner that is paused. With a lease, the transaction ends instead if the checkpoint belongs to
// a later claim. Sessions of others, which may be no consumers, are waited for and named. Where no
// session can be ended, the row is waited for.
func (s *Store) seize(ctx context.Context, lease *driver.Lease, what string, fn func(ctx context.Context, t *transaction) error) error {
	if s.sql.Session == "" {
		return s.inTransaction(ctx, what, func(t *transaction) error { return fn(ctx, t) })
	}
	var refusal, later error
	err := s.inTransaction(ctx, what, func(t *transaction) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var session int64
		if _, err := one(ctx, t, s.sql.Session, nil, &session); err != nil {
			return err
		}
		done := make(chan struct{})
		watch, stop := context.WithCancel(ctx)
		go func() {
			defer close(done)
			half := s.grace(watch) / 2
			if clock.Sleep(watch, half) != nil {
				return
			}
			if later = s.laterClaim(watch, lease); later != nil {
				cancel()
				return
			}
			refusal = s.endBlockers(watch, session, half)
		}()
		err := fn(ctx, t)
		stop()
		<-done
		return err
	})
	switch {
	case err == nil:
		return nil
	case later != nil:
		return later
	case refusal != nil:
		return fmt.Errorf("%w: %w", err, refusal)
	}
	return err
}

// grace is how long a row is waited for before the sessions that hold it are ended.
func (s *Store) grace(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return s.busy / 2
	}
	return max(time.Millisecond, min(s.busy/2, time.Until(deadline)/4))
}

// laterClaim returns a [driver.FencedError] if the checkpoint belongs to a claim that is later than
// the lease, or of another owner in the same epoch. Nobody has the lease that is nil.
func (s *Store) laterClaim(ctx context.Context, lease *driver.Lease) error {
	if lease == nil {
		return nil
	}
	var owner string
	var epoch, sequence int64
	found, err := one(ctx, s.leases.db, s.sql.Holder, key(lease.Group, lease.Partition), &owner, &epoch, &sequence)
	if err == nil && found && (epoch > lease.Epoch || epoch == lease.Epoch && owner != clean(lease.Owner)) {
		return fmt.Errorf("claim checkpoint of partition %s: %w", lease.Partition, &driver.FencedError{Partition: lease.Partition, Epoch: epoch, Owner: owner})
	}
	return nil
}

// endBlockers ends the sessions that a session waits for, once they have been in the way for a
// time, repeatedly until ctx ends: other claims pass within it. It returns why it did not end one,
// nil if there was none such.
func (s *Store) endBlockers(ctx context.Context, waiting int64, after time.Duration) (refusal error) {
	since := map[int64]time.Time{}
	for ctx.Err() == nil {
		if err := s.endBlockersOnce(ctx, waiting, since, after); err != nil && ctx.Err() == nil {
			refusal = err
		}
		clock.Sleep(ctx, min(seizeEvery, after))
	}
	return refusal
}

// session is one of the server's.
type session struct {
	id                int64
	user, application string
	own               bool // of the store's user, so that a claim may end it
}

// endBlockersOnce uses a connection of the leases: handlers may use all the others. It keeps since
// when each session has been in the way.
func (s *Store) endBlockersOnce(ctx context.Context, waiting int64, since map[int64]time.Time, after time.Duration) error {
	columns := func(b *session) []any { return []any{&b.id, &b.user, &b.application, &b.own} }
	blockers, err := collect(ctx, s.leases.db, columns, s.sql.Blockers, []any{waiting})
	if err != nil {
		return s.outage(ctx, "look for the session that holds the checkpoint", err)
	}
	var refusal error
	for _, b := range blockers {
		if _, seen := since[b.id]; !seen {
			since[b.id] = time.Now()
		}
		if time.Since(since[b.id]) < after {
			continue
		}
		if b.id == 0 { // of PostgreSQL alone
			refusal = postgres.ErrPrepared
			continue
		}
		end := fmt.Sprintf(s.sql.EndSession, b.id)
		if !b.own {
			refusal = fmt.Errorf("session %d of user %s (application %q) holds the checkpoint, and is not of this claim's user and application: end it by %s, or wait until its transaction ends", b.id, b.user, b.application, end)
			continue
		}
		if _, err := s.leases.db.ExecContext(ctx, end); err != nil {
			refusal = s.outage(ctx, fmt.Sprintf("end session %d of user %s (application %q), which holds the checkpoint", b.id, b.user, b.application), err)
		}
	}
	return refusal
}
