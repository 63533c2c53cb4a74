package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TxHarness is what [TestTxStore] and [TestDeadLetterStore] work on: an empty
// database, seen through a store, and a table of effects in it that has one
// text column for a key, without a unique constraint.
type TxHarness[Tx any] struct {
	Store       driver.TxStore[Tx]
	DeadLetters driver.DeadLetterStore // over the same database
	// Peer is another store over the same database, as another process has
	// it. Nil: Store itself.
	Peer driver.TxStore[Tx]

	// Put inserts an effect.
	Put func(ctx context.Context, tx Tx, key string) error
	// Effects returns the keys that are committed, duplicates included, in any
	// order.
	Effects func(ctx context.Context) ([]string, error)
	// Break violates a constraint, and returns the database's error.
	Break func(ctx context.Context, tx Tx) error
	// BreakLater writes what the database refuses only at the commit (a
	// deferred constraint). Nil: the database has no such thing.
	BreakLater func(ctx context.Context, tx Tx) error
	// Missing writes to a table that is not there, and returns the database's error.
	// Nil: the database makes any table.
	Missing func(ctx context.Context, tx Tx) error
	// TakeTooLong has a time limit end a statement while ctx goes on, and returns the
	// error. Nil: the database has no such limit.
	TakeTooLong func(ctx context.Context, tx Tx) error

	// Doors are the ways by which a handler may end its transaction past the store. None leaves the
	// cases out.
	Doors []Door[Tx]

	// Silence makes the database silent. Nil leaves the cases out.
	Silence Silence
	// Lock locks the row of the checkpoint of partition 0, or more, in a
	// transaction of another program. Nil leaves the case out.
	Lock Silence
	// ReadOnly makes the database refuse writes. Nil leaves the case out.
	ReadOnly Silence
	// Lose loses commits of Store on their way. Nil leaves the cases out.
	Lose Lose

	Features TxFeatures
}

// TxFeatures says where a store may differ from others.
type TxFeatures struct {
	// WaitsForOpen: Claim cannot end a transaction in progress of another
	// owner. It waits for it until its context ends, and then fails. The default
	// is that Claim ends the transaction within some seconds.
	WaitsForOpen bool
}

func (h *TxHarness[Tx]) peer() driver.TxStore[Tx] {
	if h.Peer != nil {
		return h.Peer
	}
	return h.Store
}

// put is a handler that writes effects.
func (h *TxHarness[Tx]) put(keys ...string) func(context.Context, Tx) error {
	return func(ctx context.Context, tx Tx) error {
		for _, k := range keys {
			if err := h.Put(ctx, tx, k); err != nil {
				return fmt.Errorf("put effect %s: %w", k, err)
			}
		}
		return nil
	}
}

// wantEffects fails the test if the effects are not those wanted, in any order.
func (h *TxHarness[Tx]) wantEffects(t testing.TB, want ...string) {
	t.Helper()
	got, err := h.Effects(suite.Context(t))
	suite.NoError(t, "read the effects", err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("effects are %q, want %q", got, want)
	}
}

func leaseOf(partition, owner string, epoch int64) driver.Lease {
	return driver.Lease{Group: testGroup, Partition: partition, Owner: owner, Epoch: epoch}
}

func positionAt(sequence int64) driver.Position {
	return driver.Position{Sequence: sequence, Offset: fmt.Sprintf("offset %d", sequence)}
}

// claim claims and stops the test at an error.
func (h *TxHarness[Tx]) claim(t testing.TB, lease driver.Lease) driver.Checkpoint {
	t.Helper()
	p, err := h.Store.Claim(suite.Context(t), lease, "incarnation 1")
	suite.NoError(t, fmt.Sprintf("claim for %s in epoch %d", lease.Owner, lease.Epoch), err)
	return p
}

// begin claims partition 0 for a in epoch 1 and moves it to position 9.
func (h *TxHarness[Tx]) begin(t testing.TB) driver.Lease {
	t.Helper()
	l := leaseOf("0", "a", 1)
	h.claim(t, l)
	h.commit(t, driver.Step{Lease: l, From: driver.Unset, To: positionAt(9)}, nil)
	return l
}

func (h *TxHarness[Tx]) commit(t testing.TB, step driver.Step, fn func(context.Context, Tx) error) {
	t.Helper()
	suite.NoError(t, fmt.Sprintf("commit from %v to %v in epoch %d", step.From, step.To, step.Lease.Epoch), h.Store.Commit(suite.Context(t), step, fn))
}

// checkpoint reads a partition's checkpoint without claiming it.
func (h *TxHarness[Tx]) checkpoint(t testing.TB, partition string) driver.Checkpoint {
	t.Helper()
	list, err := h.Store.Read(suite.Context(t), testGroup)
	suite.NoError(t, "read", err)
	for _, p := range list {
		if p.Partition == partition {
			return p
		}
	}
	t.Fatalf("read: no checkpoint of partition %s in %v", partition, list)
	return driver.Checkpoint{}
}

// wantPosition fails the test for a checkpoint that is not at this position.
func (h *TxHarness[Tx]) wantPosition(t testing.TB, partition string, want driver.Position) {
	t.Helper()
	if got := h.checkpoint(t, partition).Position; got != want {
		t.Errorf("partition %s: checkpoint is at %+v, want %+v", partition, got, want)
	}
}

// wantFenced fails the test for an error that is not ErrFenced, or blames the handler.
func wantFenced(t testing.TB, what string, err error) {
	t.Helper()
	suite.ErrorIs(t, what, err, driver.ErrFenced)
	if isHandlerError(err) {
		t.Errorf("%s: %v is a HandlerError", what, err)
	}
}

// wantHandlerError fails the test for an error that is not a HandlerError around want.
func wantHandlerError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !isHandlerError(err) || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: got %T: %v; want a HandlerError around: %v", what, err, err, want)
	}
}

// wantOutage fails the test for an error that says more or less than that nothing was written, and
// that the event is not at fault.
func wantOutage(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || isHandlerError(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
		t.Errorf("%s: got %T %v, want the error of an outage", what, err, err)
	}
}

// deadLetterOf is a dead letter whose event has this number.
func deadLetterOf(partition string, sequence int64) driver.DeadLetter {
	return driver.DeadLetter{
		Group:       testGroup,
		Incarnation: "incarnation 1",
		FailedAt:    time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC),
		Error:       fmt.Sprintf("event %d failed", sequence),
		Attempts:    3,
		Status:      driver.StatusDead,
		HasBody:     true,
		Event: driver.Event{
			Partition: partition, Sequence: sequence, Offset: positionAt(sequence).Offset,
			Enqueued: time.Date(2026, 1, 2, 3, 0, 0, 123_000_000, time.UTC),
			Body:     fmt.Appendf(nil, "body %d", sequence),
		},
	}
}

// park stores dead letters under the lease at 9 and returns them all as they
// are then listed, by sequence number.
func (h *TxHarness[Tx]) park(t testing.TB, lease driver.Lease, deadLetters ...driver.DeadLetter) map[int64]driver.DeadLetter {
	t.Helper()
	h.commit(t, driver.Step{Lease: lease, From: positionAt(9), To: positionAt(9), DeadLetters: deadLetters}, nil)
	return h.deadLetters(t)
}

// deadLetters lists the group's dead letters by sequence number.
func (h *TxHarness[Tx]) deadLetters(t testing.TB) map[int64]driver.DeadLetter {
	t.Helper()
	return listDeadLetters(t, h.DeadLetters)
}

// listDeadLetters lists testGroup's dead letters by sequence number.
func listDeadLetters(t testing.TB, store driver.DeadLetterStore) map[int64]driver.DeadLetter {
	t.Helper()
	list, err := store.List(suite.Context(t), testGroup, driver.DeadLetterFilter{})
	suite.NoError(t, "list dead letters", err)
	found := make(map[int64]driver.DeadLetter)
	for _, l := range list {
		found[l.Event.Sequence] = l
	}
	if len(found) != len(list) {
		t.Fatalf("%d dead letters of %d events", len(list), len(found))
	}
	return found
}

// redrive marks dead letters for a redrive now.
func (h *TxHarness[Tx]) redrive(t testing.TB, ids ...int64) {
	t.Helper()
	n, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: ids}, time.Time{})
	suite.NoError(t, "redrive", err)
	if n != int64(len(ids)) {
		t.Errorf("redrive of %d dead letters marked %d", len(ids), n)
	}
}
