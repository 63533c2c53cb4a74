package sluicetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Store is a database in memory: a [driver.TxStore] whose handlers write rows
// through a [*Tx], the [driver.CheckpointStore] and [driver.DeadLetterQueue] of
// deliveries without transactions, and the [driver.DeadLetterStore] beside
// them. Its clock is [time.Now]. The zero value is ready to use. It is safe for
// concurrent use.
//
// A claim ends the partition's transactions in progress: they cannot commit.
type Store struct {
	// Faults, if set, can make every operation fail.
	Faults Faults
	// Unsafe switches protections off. It exists only so that tests can check
	// that these matter. Neither field must change while the store is in use.
	Unsafe UnsafeStore

	mu          sync.Mutex
	checkpoints map[place]*checkpoint
	tables      map[string]*table
	dedup       map[place][]dedupEntry // in the steps' order
	deadLetters []*sluice.DeadLetter   // lowest id first
	lastID      int64
	copied      map[int64]bool // IDs of dead letters that are marked as copied
}

var (
	_ driver.TxStore[*Tx]    = (*Store)(nil)
	_ driver.CheckpointStore = (*Store)(nil)
	_ driver.DeadLetterQueue = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
	_ driver.CopyMarks       = (*Store)(nil)
)

// checkpoint is a row. Its claim number shows a transaction that a claim came in
// between.
type checkpoint struct {
	sluice.Checkpoint
	claim int
}

// Rows returns the committed rows of a table in the order they were written,
// those of one transaction together.
func (s *Store) Rows(table string) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[table]; t != nil {
		return slices.Clone(t.rows)
	}
	return nil
}

// Claim implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	if err := s.begin(ctx, OpClaim, lease); err != nil {
		return sluice.Checkpoint{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.checkpoint(lease.Group, lease.Partition, incarnation)
	switch {
	case s.Unsafe.NoFence:
	case c.Epoch > lease.Epoch, c.Epoch == lease.Epoch && c.Owner != lease.Owner:
		return sluice.Checkpoint{}, c.fenced()
	}
	if !c.held(lease) {
		c.Epoch, c.Owner = lease.Epoch, lease.Owner
		c.Claims++
	}
	c.claim++
	c.Updated = time.Now()
	claimed := c.value()
	for _, l := range s.deadLetters {
		if l.Group == lease.Group && l.Event.Partition == lease.Partition && l.Incarnation == incarnation {
			claimed.DeadLettersBelow = max(claimed.DeadLettersBelow, l.Event.Sequence+1)
		}
	}
	return claimed, nil
}

// Commit implements [driver.TxStore]. It holds no lock while fn runs: the
// fence is checked before, and once more at the commit.
func (s *Store) Commit(ctx context.Context, step driver.Step, fn func(ctx context.Context, tx *Tx) error) error {
	if err := s.begin(ctx, OpCommit, step.Lease); err != nil {
		return err
	}
	s.mu.Lock()
	claim, err := s.check(step)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	tx := &Tx{store: s, lease: step.Lease}
	defer tx.end()
	if fn != nil {
		err = fn(ctx, tx)
	}
	broken := tx.end()
	switch {
	case broken != nil:
		return fmt.Errorf("commit partition %s: %w", step.Lease.Partition, broken)
	case ctx.Err() != nil:
		// The end of the context, not the event, made the handler fail.
		return fmt.Errorf("commit partition %s: %w", step.Lease.Partition, context.Cause(ctx))
	case err != nil:
		return handlerError(err)
	}
	if step.DryRun {
		if !tx.ran.Has(step.Witness) {
			return driver.ErrNotRun
		}
		return s.dryRun(tx.writes)
	}
	return s.send(step, claim, tx.writes)
}

// dryRun returns what a commit of the rows would return.
func (s *Store) dryRun(writes []write) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.violated(writes); err != nil {
		return &driver.HandlerError{Err: err}
	}
	return nil
}

// send commits a transaction, through Faults.
func (s *Store) send(step driver.Step, claim int, writes []write) error {
	if s.Unsafe.SplitCommit {
		s.mu.Lock()
		err := s.insert(writes)
		s.mu.Unlock()
		if err != nil {
			return &driver.HandlerError{Err: err}
		}
		writes = nil
	}
	var way func(apply func() error) error
	if s.Faults != nil {
		way = func(apply func() error) error { return s.Faults.Commit(step, apply) }
	}
	return s.route(way, func() error { return s.apply(step, claim, writes) })
}

// route takes a change to the database on the way that Faults have for it,
// nil if they have none. The change is made with the lock held.
func (s *Store) route(way func(apply func() error) error, change func() error) error {
	sent := false
	apply := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sent {
			return errors.New("it was sent once already")
		}
		sent = true
		return change()
	}
	if way == nil {
		return apply()
	}
	err := way(apply)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !sent {
		return errors.New("Faults answered with nil and applied nothing")
	}
	return err
}

// check reports whether the checkpoint and the dead letters are as the step
// expects. It returns the number of the claim. The lock is held.
func (s *Store) check(step driver.Step) (claim int, err error) {
	if c := s.checkpoints[place{step.Lease.Group, step.Lease.Partition}]; c != nil {
		claim = c.claim
	}
	if err := s.fence(step.Lease, step.From); err != nil {
		return claim, err
	}
	retried := slices.Clone(step.Redriven)
	for i := range step.FailedRedrives {
		retried = append(retried, step.FailedRedrives[i].ID)
	}
	for i, id := range retried {
		l := s.deadLetter(step.Lease.Group, id)
		if l == nil || l.Event.Partition != step.Lease.Partition || l.Status != sluice.StatusRetry || slices.Contains(retried[:i], id) {
			return claim, fmt.Errorf("dead letter %d is no longer marked for redrive: %w", id, sluice.ErrFenced)
		}
	}
	return claim, nil
}

// fence reports whether the checkpoint is the lease's and stands at from. The
// lock is held.
func (s *Store) fence(lease sluice.Lease, from sluice.Position) error {
	c := s.checkpoints[place{lease.Group, lease.Partition}]
	switch {
	case c == nil:
		return fmt.Errorf("partition %s has no checkpoint: %w", lease.Partition, sluice.ErrFenced)
	case !s.Unsafe.NoFence && !c.held(lease):
		return c.fenced()
	case !s.Unsafe.NoPosition && c.Position.Sequence != from.Sequence:
		return fmt.Errorf("partition %s: its checkpoint is at %v, not at %v: %w", lease.Partition, c.Position, from, sluice.ErrFenced)
	}
	return nil
}

// held reports whether the checkpoint is the lease's.
func (c *checkpoint) held(lease sluice.Lease) bool {
	return c.Epoch == lease.Epoch && c.Owner == lease.Owner
}

// value returns a copy of the row for a caller.
func (c *checkpoint) value() sluice.Checkpoint {
	p := c.Checkpoint
	p.Done = slices.Clone(c.Done)
	return p
}

// move sets the position. If that changes, it clears what was recorded of the events after it.
func (c *checkpoint) move(to sluice.Position) {
	if c.Position.Sequence != to.Sequence {
		c.Claims, c.Attempt, c.Done = 1, driver.AttemptRecord{}, nil
	}
	c.Position, c.Updated = to, time.Now()
}

func (c *checkpoint) fenced() error {
	return &driver.FencedError{Partition: c.Partition, Epoch: c.Epoch, Owner: c.Owner}
}

// apply commits: all of it, or nothing. The lock is held.
func (s *Store) apply(step driver.Step, claim int, writes []write) error {
	now, err := s.check(step)
	if err != nil {
		return err
	}
	if now != claim && !s.Unsafe.LateCommit {
		return fmt.Errorf("commit partition %s: the transaction was ended by a claim", step.Lease.Partition)
	}
	if err := s.insert(writes); err != nil { // the last thing that can fail
		return &driver.HandlerError{Err: err}
	}
	s.checkpoints[place{step.Lease.Group, step.Lease.Partition}].move(step.To)
	s.storeDedup(step)
	for i := range step.DeadLetters {
		s.put(&step.DeadLetters[i])
	}
	for i := range step.FailedRedrives {
		again := step.FailedRedrives[i]
		if step.PostponeFor > 0 && again.Status == sluice.StatusRetry {
			again.NextAttempt = time.Now().Add(step.PostponeFor).UTC()
		}
		failed(s.deadLetter(step.Lease.Group, again.ID), &again)
	}
	s.deadLetters = slices.DeleteFunc(s.deadLetters, func(l *sluice.DeadLetter) bool {
		return slices.Contains(step.Redriven, l.ID) || settledBy(step, l)
	})
	return nil
}

// Begin implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Begin(ctx context.Context, lease sluice.Lease, from, to sluice.Position) error {
	if err := s.begin(ctx, OpBegin, lease); err != nil {
		return err
	}
	return s.write(OpBegin, lease, func() error {
		if err := s.fence(lease, from); err != nil {
			return err
		}
		c := s.checkpoints[place{lease.Group, lease.Partition}]
		c.move(to)
		c.Began = driver.Beginning{After: to.Sequence, How: driver.HowStart}
		return nil
	})
}

// RecordAttempt implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, attempt driver.AttemptRecord) error {
	if err := s.begin(ctx, OpRecord, lease); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fence(lease, at); err != nil {
		return err
	}
	c := s.checkpoints[place{lease.Group, lease.Partition}]
	c.Attempt, c.Updated = attempt, time.Now()
	return nil
}

// Leave implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Leave(ctx context.Context, lease sluice.Lease) error {
	if err := s.begin(ctx, OpLeave, lease); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.checkpoints[place{lease.Group, lease.Partition}]; c != nil && c.held(lease) {
		c.Claims, c.Updated = 0, time.Now()
	}
	return nil
}

// Read implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	if err := s.begin(ctx, OpRead, sluice.Lease{Group: group}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []sluice.Checkpoint
	for at, c := range s.checkpoints {
		if at.group == group {
			list = append(list, c.value())
		}
	}
	slices.SortFunc(list, func(a, b sluice.Checkpoint) int { return cmp.Compare(a.Partition, b.Partition) })
	return list, nil
}

// Reset implements [driver.TxStore] and [driver.CheckpointStore].
func (s *Store) Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position, how driver.How) (int64, error) {
	if err := s.begin(ctx, OpReset, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.checkpoint(group, partition, incarnation)
	c.Incarnation, c.Position, c.Began = incarnation, to, driver.Beginning{After: to.Sequence, How: how}
	// The new epoch has no owner: not even the last owner may claim it.
	c.Owner = ""
	c.Epoch++
	c.Claims, c.Attempt, c.Done, c.Updated = 0, driver.AttemptRecord{}, nil, time.Now()
	s.removeDedup(place{group, partition}, func(f dedupEntry) bool { return f.step > to.Sequence })
	return c.Epoch, nil
}

// begin is what every operation does first.
func (s *Store) begin(ctx context.Context, op Op, lease sluice.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Faults != nil {
		return s.Faults.Before(op, lease)
	}
	return nil
}

// checkpoint finds or creates a row. The lock is held.
func (s *Store) checkpoint(group sluice.Group, partition, incarnation string) *checkpoint {
	at := place{group, partition}
	c := s.checkpoints[at]
	if c == nil {
		if s.checkpoints == nil {
			s.checkpoints = make(map[place]*checkpoint)
		}
		c = &checkpoint{Checkpoint: sluice.Checkpoint{Group: group, Partition: partition, Incarnation: incarnation, Position: driver.Unset}}
		s.checkpoints[at] = c
	}
	return c
}
