package sluicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// testGroup is the group that the suites of storetest use.
var testGroup = sluice.Group{Namespace: "ns", Topic: "flights/x", Name: "$Default"}

func positionAt(sequence int64) sluice.Position {
	return sluice.Position{Sequence: sequence, Offset: fmt.Sprintf("offset %d", sequence)}
}

func leaseOf(partition, owner string, epoch int64) sluice.Lease {
	return sluice.Lease{Group: testGroup, Partition: partition, Owner: owner, Epoch: epoch}
}

// parked is a dead letter whose event has this number.
func parked(partition string, sequence int64) sluice.DeadLetter {
	return sluice.DeadLetter{
		Group: testGroup, Incarnation: "incarnation 1", FailedAt: time.Now(), Error: "failed", Attempts: 3,
		Status: sluice.StatusDead, Event: sluice.Event{Partition: partition, Sequence: sequence},
	}
}

// blames reports whether err is a [*driver.HandlerError].
func blames(err error) bool {
	_, found := errors.AsType[*driver.HandlerError](err)
	return found
}

// fenced fails the test if the error is not ErrFenced, or blames the handler.
func fenced(t testing.TB, what string, err error) {
	t.Helper()
	suite.ErrorIs(t, what, err, sluice.ErrFenced)
	if blames(err) {
		t.Errorf("%s: %v is a HandlerError", what, err)
	}
}

// fixture is a store with short forms of its methods, which stop the test at an error.
type fixture struct{ *Store }

// begin claims partition 0 for a in epoch 1 and moves it to position 9.
func (f fixture) begin(t testing.TB) sluice.Lease {
	t.Helper()
	l := leaseOf("0", "a", 1)
	f.claim(t, l)
	suite.NoError(t, "commit", f.Commit(suite.Context(t), driver.Step{Lease: l, From: driver.Unset, To: positionAt(9)}, nil))
	return l
}

func (f fixture) claim(t testing.TB, lease sluice.Lease) sluice.Checkpoint {
	t.Helper()
	p, err := f.Claim(suite.Context(t), lease, "incarnation 1")
	suite.NoError(t, "claim", err)
	return p
}

// put is a handler that writes an effect.
func (f fixture) put(key string) func(context.Context, *Tx) error {
	return func(_ context.Context, tx *Tx) error { return tx.Insert("effects", key) }
}

// effects fails the test if the effects are not those wanted.
func (f fixture) effects(t testing.TB, want ...any) {
	t.Helper()
	if got := f.Rows("effects"); !slices.Equal(got, want) {
		t.Errorf("effects are %q, want %q", got, want)
	}
}

// progress reads the checkpoint of partition 0.
func (f fixture) progress(t testing.TB) sluice.Checkpoint {
	t.Helper()
	list, err := f.Read(suite.Context(t), testGroup)
	suite.NoError(t, "read", err)
	if len(list) != 1 || list[0].Partition != "0" {
		t.Fatalf("read: %v, want the checkpoint of partition 0", list)
	}
	return list[0]
}

// stands fails the test if the checkpoint of partition 0 is not at this position.
func (f fixture) stands(t testing.TB, want sluice.Position) {
	t.Helper()
	if got := f.progress(t).Position; got != want {
		t.Errorf("the checkpoint is at %+v, want %+v", got, want)
	}
}

func (f fixture) list(t testing.TB) []sluice.DeadLetter {
	t.Helper()
	list, err := f.List(suite.Context(t), testGroup, sluice.DeadLetterFilter{})
	suite.NoError(t, "list dead letters", err)
	return list
}

// open opens a reader.
func open(t testing.TB, h *Hub, partition string, after sluice.Position, epoch int64) driver.Reader {
	t.Helper()
	r, err := h.Open(suite.Context(t), partition, after, epoch)
	suite.NoError(t, "open", err)
	return r
}

// read reads one event.
func read(t testing.TB, r driver.Reader) *sluice.Event {
	t.Helper()
	events, err := r.Read(suite.Context(t), 1)
	suite.NoError(t, "read", err)
	return events[0]
}

// stolen fails the test if the error is not the StolenError wanted.
func stolen(t testing.TB, what string, err error, partition string, epoch int64) {
	t.Helper()
	if e, found := errors.AsType[*driver.StolenError](err); !found || e.Partition != partition || e.Epoch != epoch {
		t.Errorf("%s: got %v, want a StolenError of partition %s and epoch %d", what, err, partition, epoch)
	}
}
