package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestTxStore is the conformance suite of [driver.TxStore]. Every case asks new
// for an empty database.
func TestTxStore[Tx any](t *testing.T, new func(t testing.TB) TxHarness[Tx]) {
	suite.Run(t, txChecks[Tx](), new)
}

func txChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	var all []suite.Check[TxHarness[Tx]]
	all = append(all, claimChecks[Tx]()...)
	all = append(all, commitChecks[Tx]()...)
	all = append(all, failureChecks[Tx]()...)
	all = append(all, endedChecks[Tx]()...)
	all = append(all, redriveChecks[Tx]()...)
	all = append(all, dedupChecks[Tx]()...)
	all = append(all, contentionChecks[Tx]()...)
	all = append(all, lostChecks[Tx]()...)
	return append(all, silenceOfTx[Tx](), heldFromOutside[Tx](), readOnlyTx[Tx]())
}

// claimChecks are about checkpoints outside of transactions: Claim, Record,
// Leave, Read, Reset.
func claimChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "ClaimCreates", Run: func(t testing.TB, h TxHarness[Tx]) {
			l := leaseOf("0", "a", 7)
			p := h.claim(t, l)
			p.Updated = p.Updated.UTC()
			want := driver.Checkpoint{Group: testGroup, Partition: "0", Incarnation: incarnation, Position: driver.Unset, Owner: "a", Epoch: 7, Claims: 1, Updated: p.Updated}
			if !reflect.DeepEqual(p, want) || p.Updated.IsZero() {
				t.Errorf("claimed %+v, want %+v", p, want)
			}
			if got := h.checkpoint(t, "0"); !sameCheckpoint(got, want) {
				t.Errorf("read %+v, want %+v", got, want)
			}
		}},
		{Name: "Begin", Run: func(t testing.TB, h TxHarness[Tx]) {
			lease := func(owner string, epoch int64) driver.Lease { return leaseOf("0", owner, epoch) }
			checkBegin(t, h.Store, lease, func(l driver.Lease) {
				h.commit(t, driver.Step{Lease: l, From: positionAt(9), To: positionAt(12)}, nil)
			})
		}},
		{Name: "ClaimRaises", Run: func(t testing.TB, h TxHarness[Tx]) {
			h.begin(t)
			p := h.claim(t, leaseOf("0", "b", 5))
			if p.Owner != "b" || p.Epoch != 5 || p.Position != positionAt(9) {
				t.Errorf("claimed %+v, want owner b, epoch 5, position %+v", p, positionAt(9))
			}
			if p = h.claim(t, leaseOf("0", "b", 6)); p.Epoch != 6 {
				t.Errorf("the same owner claimed in epoch 6, got %+v", p)
			}
		}},
		{Name: "ClaimFenced", Run: func(t testing.TB, h TxHarness[Tx]) {
			h.claim(t, leaseOf("0", "b", 5))
			before := h.checkpoint(t, "0")
			for _, l := range []driver.Lease{leaseOf("0", "a", 4), leaseOf("0", "b", 4), leaseOf("0", "a", 5)} {
				_, err := h.Store.Claim(suite.Context(t), l, incarnation)
				f, found := errors.AsType[*driver.FencedError](err)
				if !found || f.Partition != "0" || f.Epoch != 5 || f.Owner != "b" {
					t.Errorf("claim for %s in epoch %d: got %v, want a FencedError that names epoch 5 of b", l.Owner, l.Epoch, err)
				}
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("claims in vain changed %+v to %+v", before, after)
			}
		}},
		{Name: "Claims", Run: func(t testing.TB, h TxHarness[Tx]) {
			claims := func(what string, want int) {
				t.Helper()
				if got := h.checkpoint(t, "0").Claims; got != want {
					t.Errorf("%s: %d claims, want %d", what, got, want)
				}
			}
			a := leaseOf("0", "a", 1)
			for range 3 {
				if p := h.claim(t, a); p.Claims != 1 {
					t.Errorf("claimed repeatedly in one epoch: %d claims, want 1", p.Claims)
				}
			}
			h.claim(t, leaseOf("0", "a", 2))
			if p := h.claim(t, leaseOf("0", "b", 3)); p.Claims != 3 {
				t.Errorf("claimed in three epochs: %d claims", p.Claims)
			}
			b := leaseOf("0", "b", 3)
			suite.NoError(t, "record", h.Store.RecordAttempt(suite.Context(t), b, driver.Unset, driver.AttemptRecord{Sequence: 0, Attempts: 1, Error: "no"}))
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: driver.Unset, DeadLetters: []driver.DeadLetter{deadLetterOf("0", 3)}}, nil)
			claims("no progress", 3)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(0)}, nil)
			claims("progress", 1)
			if p := h.claim(t, leaseOf("0", "c", 9)); p.Claims != 2 {
				t.Errorf("claimed after progress: %d claims, want 2", p.Claims)
			}
			for _, l := range []driver.Lease{b, leaseOf("0", "b", 9), leaseOf("0", "c", 8), leaseOf("1", "c", 9)} {
				suite.NoError(t, "leave by one who was fenced off", h.Store.Leave(suite.Context(t), l))
			}
			claims("left by one who was fenced off", 2)
			suite.NoError(t, "leave", h.Store.Leave(suite.Context(t), leaseOf("0", "c", 9)))
			claims("left cleanly", 0)
			if p := h.claim(t, leaseOf("0", "d", 10)); p.Claims != 1 || p.Position != positionAt(0) {
				t.Errorf("claimed after a clean leave: %d claims at %+v, want 1 at %+v", p.Claims, p.Position, positionAt(0))
			}
		}},
		{Name: "Incarnation", Run: func(t testing.TB, h TxHarness[Tx]) {
			h.begin(t)
			p, err := h.Store.Claim(suite.Context(t), leaseOf("0", "b", 2), "incarnation 2")
			suite.NoError(t, "claim with another incarnation", err)
			if p.Incarnation != incarnation || p.Position != positionAt(9) || p.Epoch != 2 || p.Owner != "b" {
				t.Errorf("got %+v, want the checkpoint claimed, and its incarnation and position as they were", p)
			}
		}},
		{Name: "Trial", Run: func(t testing.TB, h TxHarness[Tx]) {
			checkAttempts(t, attempts{
				record: h.Store.RecordAttempt, a: h.begin(t),
				next: func() (driver.Lease, driver.Checkpoint) {
					b := leaseOf("0", "b", 2)
					return b, h.claim(t, b)
				},
				move: func(l driver.Lease, from, to driver.Position) {
					h.commit(t, driver.Step{Lease: l, From: from, To: to}, nil)
				},
				read: func() driver.Checkpoint { return h.checkpoint(t, "0") },
			})
		}},
		{Name: "DeadLettersBelow", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			if p := h.claim(t, a); p.DeadLettersBelow != 0 {
				t.Errorf("claimed without dead letters: all below %d, want 0", p.DeadLettersBelow)
			}
			recreated := deadLetterOf("0", 99)
			recreated.Incarnation = "incarnation 2"
			found := h.park(t, a, deadLetterOf("0", 0), deadLetterOf("0", 25), deadLetterOf("0", 12), recreated)
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetterOf("1", 77)}}, nil)
			if p := h.claim(t, a); p.DeadLettersBelow != 26 {
				t.Errorf("claimed with a dead letter of event 25: all below %d, want 26", p.DeadLettersBelow)
			}
			_, err := h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[25].ID}})
			suite.NoError(t, "discard", err)
			if p := h.claim(t, leaseOf("0", "b", 2)); p.DeadLettersBelow != 26 {
				t.Errorf("claimed with a discarded dead letter of event 25: all below %d, want 26", p.DeadLettersBelow)
			}
		}},
		{Name: "Read", Run: func(t testing.TB, h TxHarness[Tx]) {
			for i, p := range []string{"10", "2", "0"} {
				h.claim(t, leaseOf(p, "a", int64(i+1)))
			}
			for range 2 { // reading claims nothing
				list, err := h.Store.Read(suite.Context(t), testGroup)
				suite.NoError(t, "read", err)
				var got []string
				for _, p := range list {
					got = append(got, fmt.Sprintf("%s epoch %d claims %d", p.Partition, p.Epoch, p.Claims))
				}
				if want := []string{"0 epoch 3 claims 1", "10 epoch 1 claims 1", "2 epoch 2 claims 1"}; !reflect.DeepEqual(got, want) {
					t.Errorf("read %q, want %q", got, want)
				}
			}
		}},
		{Name: "GroupsApart", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			for _, g := range otherGroups {
				list, err := h.Store.Read(suite.Context(t), g)
				suite.NoError(t, "read", err)
				if len(list) != 0 {
					t.Errorf("group %v: read %v before anything was claimed", g, list)
				}
				l := driver.Lease{Group: g, Partition: "0", Owner: "o'wner", Epoch: 1}
				p, err := h.Store.Claim(suite.Context(t), l, incarnation)
				suite.NoError(t, fmt.Sprintf("claim in group %v", g), err)
				if p.Position != driver.Unset || p.Group != g {
					t.Errorf("group %v: claimed %+v, another group's", g, p)
				}
				suite.NoError(t, "commit", h.Store.Commit(suite.Context(t), driver.Step{Lease: l, From: driver.Unset, To: positionAt(77)}, nil))
			}
			h.wantPosition(t, "0", positionAt(9))
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, nil)
		}},
		{Name: "Reset", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.claim(t, leaseOf("0", "a", 2))
			a.Epoch = 2
			suite.NoError(t, "record", h.Store.RecordAttempt(suite.Context(t), a, positionAt(9), driver.AttemptRecord{Sequence: 10, DeadLetter: 7, Attempts: 1, Error: "no", Unreturned: 1}))
			epoch, err := h.Store.Reset(suite.Context(t), testGroup, "0", "incarnation 2", positionAt(4), "set")
			suite.NoError(t, "reset", err)
			p := h.checkpoint(t, "0")
			if epoch <= 2 || p.Epoch != epoch || p.Position != positionAt(4) || p.Incarnation != "incarnation 2" || p.Claims != 0 || p.Attempt != (driver.AttemptRecord{}) {
				t.Errorf("reset to epoch %d: %+v, want an epoch above 2, position %+v of incarnation 2, no claims, no trial", epoch, p, positionAt(4))
			}
			called := false
			for _, from := range []int64{9, 4} {
				wantFenced(t, "commit by the owner of before", h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(from), To: positionAt(10)}, func(context.Context, Tx) error {
					called = true
					return nil
				}))
			}
			if called {
				t.Error("a handler was called under a lease that a reset had fenced off")
			}
			wantFenced(t, "record by the owner of before", h.Store.RecordAttempt(suite.Context(t), a, positionAt(4), driver.AttemptRecord{}))
			_, err = h.Store.Claim(suite.Context(t), a, "incarnation 2")
			wantFenced(t, "claim in the epoch of before", err)
			_, err = h.Store.Claim(suite.Context(t), leaseOf("0", "b", epoch), "incarnation 2")
			if f, found := errors.AsType[*driver.FencedError](err); !found || f.Epoch != epoch {
				t.Errorf("claim in the reset's own epoch: got %v, want a FencedError that names epoch %d", err, epoch)
			}
			again, err := h.Store.Reset(suite.Context(t), testGroup, "0", "incarnation 2", driver.Origin, "set")
			suite.NoError(t, "reset again", err)
			if again <= epoch {
				t.Errorf("reset again to epoch %d, after %d", again, epoch)
			}
			if p := h.claim(t, leaseOf("0", "b", again+1)); p.Claims != 1 || p.Position != driver.Origin {
				t.Errorf("claimed after a reset: %+v, want 1 claim at the origin", p)
			}
		}},
		{Name: "ResetCreates", Run: func(t testing.TB, h TxHarness[Tx]) {
			epoch, err := h.Store.Reset(suite.Context(t), testGroup, "0", incarnation, positionAt(4), "set")
			suite.NoError(t, "reset", err)
			p := h.checkpoint(t, "0")
			if epoch < 1 || p.Epoch != epoch || p.Position != positionAt(4) || p.Incarnation != incarnation || p.Claims != 0 {
				t.Errorf("reset made %+v with epoch %d", p, epoch)
			}
			h.claim(t, leaseOf("0", "a", epoch+1))
			h.commit(t, driver.Step{Lease: leaseOf("0", "a", epoch+1), From: positionAt(4), To: positionAt(5)}, nil)
		}},
		{Name: "AfterAdvance", Run: func(t testing.TB, h TxHarness[Tx]) {
			// A store may serve deliveries of both kinds, and a group change from
			// one to the other. What is after a position goes when it moves.
			checkpoints, both := any(h.Store).(driver.CheckpointStore)
			if !both {
				return
			}
			a := h.begin(t)
			done := []driver.SequenceRange{{First: 13, Last: 14}}
			trial := driver.AttemptRecord{Sequence: 10, DeadLetter: 7, Attempts: 1, Error: "no", Unreturned: 1}
			suite.NoError(t, "record", h.Store.RecordAttempt(suite.Context(t), a, positionAt(9), trial))
			suite.NoError(t, "advance", checkpoints.Advance(suite.Context(t), a, incarnation, positionAt(9), done))
			if p := h.claim(t, a); p.Attempt != trial || !slices.Equal(p.Done, done) {
				t.Errorf("advanced in place: %+v, want trial %+v and %v done", p, trial, done)
			}
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9)}, nil)
			if p := h.claim(t, a); !slices.Equal(p.Done, done) {
				t.Errorf("a step that moves nothing left %v done, want %v", p.Done, done)
			}
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, nil)
			if p := h.checkpoint(t, "0"); len(p.Done) > 0 {
				t.Errorf("a step left %v done after %v, want none", p.Done, p.Position)
			}
			suite.NoError(t, "record", h.Store.RecordAttempt(suite.Context(t), a, positionAt(10), driver.AttemptRecord{Sequence: 11, DeadLetter: 7, Attempts: 1, Error: "no", Unreturned: 1}))
			suite.NoError(t, "advance", checkpoints.Advance(suite.Context(t), a, incarnation, positionAt(11), done))
			if p := h.checkpoint(t, "0"); p.Attempt != (driver.AttemptRecord{}) || p.Claims != 1 {
				t.Errorf("an advance left %+v, want no trial and 1 claim", p)
			}
			wantFenced(t, "commit from where it was", h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(10), To: positionAt(12)}, nil))
		}},
		{Name: "LargeNumbers", Run: func(t testing.TB, h TxHarness[Tx]) {
			l := leaseOf("0", "a", 1<<40)
			h.claim(t, l)
			far := driver.Position{Sequence: 1<<62 + 1, Offset: strings.Repeat("9", 60)}
			h.commit(t, driver.Step{Lease: l, From: driver.Unset, To: far}, nil)
			h.wantPosition(t, "0", far)
		}},
	}
}

// sameCheckpoint compares all but the time.
func sameCheckpoint(a, b driver.Checkpoint) bool {
	if !slices.Equal(a.Done, b.Done) {
		return false
	}
	a.Updated, a.Done = b.Updated, b.Done
	return reflect.DeepEqual(a, b)
}
