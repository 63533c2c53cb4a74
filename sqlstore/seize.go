package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// seizeEvery is the time between two queries for the sessions that hold a row.
const seizeEvery = 50 * time.Millisecond

// seize runs a transaction that changes a checkpoint's row, where the database lets one session end
// another. If other sessions hold the row for longer than half of the lock time-out, or than a quarter of
// the time that ctx leaves, they are ended: one may belong to an owner that is paused. With a lease, the
// transaction ends instead if the checkpoint belongs to a later claim. Where no session can be ended, the
// row is waited for.
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
			if clock.Sleep(watch, s.grace(watch)) != nil {
				return
			}
			if later = s.laterClaim(watch, lease); later != nil {
				cancel()
				return
			}
			refusal = s.endBlockers(watch, session)
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

// laterClaim returns a [driver.FencedError] if the checkpoint belongs to a claim that is later than the
// lease, or of another owner in the same epoch. Nobody has the lease that is nil.
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

// endBlockers ends the sessions that a session waits for, repeatedly until ctx ends. It returns why it
// could not end one, nil if none resisted.
func (s *Store) endBlockers(ctx context.Context, waiting int64) (refusal error) {
	for ctx.Err() == nil {
		if err := s.endBlockersOnce(ctx, waiting); err != nil && ctx.Err() == nil {
			refusal = err
		}
		clock.Sleep(ctx, seizeEvery)
	}
	return refusal
}

// session is one of the server's.
type session struct {
	id   int64
	user string
}

// endBlockersOnce uses a connection of the leases: handlers may use all the others.
func (s *Store) endBlockersOnce(ctx context.Context, waiting int64) error {
	blockers, err := collect(ctx, s.leases.db, func(b *session) []any { return []any{&b.id, &b.user} }, s.sql.Blockers, []any{waiting})
	if err != nil {
		return s.outage(ctx, "look for the session that holds the checkpoint", err)
	}
	var refusal error
	for _, b := range blockers {
		if _, err := s.leases.db.ExecContext(ctx, fmt.Sprintf(s.sql.EndSession, b.id)); err != nil {
			refusal = s.outage(ctx, fmt.Sprintf("end session %d of %s, which holds the checkpoint", b.id, b.user), err)
		}
	}
	return refusal
}
