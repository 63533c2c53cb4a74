package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// Door is a way by which a handler may end its transaction, past the store.
type Door[Tx any] struct {
	Name string
	// End ends the transaction, or tries to. Its error is what a handler would see.
	End func(ctx context.Context, tx Tx) error
	// Refused says that End commits nothing: store or database keep it from that. The step then
	// succeeds as a whole, or is the handler's failure as a whole.
	Refused bool
	// Close removes what End leaves in the database. Nil: nothing.
	Close func(ctx context.Context) error
}

// endings are what a handler does after it has ended its transaction.
var endings = map[string]func() error{
	"Nil":   func() error { return nil },
	"Error": func() error { return errors.New("failed after the end") },
	"Panic": func() error { panic("after the end") },
}

// endedChecks are about handlers that end their transaction. Whatever they do, the checkpoint never
// passes events whose effects and dead letters are not there, and no event is blamed for an effect
// that is committed.
func endedChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	var checks []suite.Check[TxHarness[Tx]]
	eachDoor := func(name string, run func(t testing.TB, h TxHarness[Tx], door Door[Tx], lease driver.Lease)) {
		checks = append(checks, suite.Check[TxHarness[Tx]]{Name: name, Run: func(t testing.TB, h TxHarness[Tx]) {
			for i, door := range h.Doors {
				lease := leaseOf(fmt.Sprint("door ", i), "a", 1)
				h.claim(t, lease)
				h.commit(t, driver.Step{Lease: lease, From: driver.Unset, To: positionAt(9)}, nil)
				run(t, h, door, lease)
			}
		}})
	}
	for _, how := range []string{"Nil", "Error", "Panic"} {
		eachDoor("EndedThen"+how, func(t testing.TB, h TxHarness[Tx], door Door[Tx], lease driver.Lease) {
			step := driver.Step{Lease: lease, From: positionAt(9), To: positionAt(12), DeadLetters: []driver.DeadLetter{h.deadLetterNext(t, lease)}}
			err, panicked := h.end(t, step, door, endings[how])
			if panicked != (how == "Panic") {
				t.Errorf("%s: panicked %t", door.Name, panicked)
			}
			h.wantEnded(t, door, step, err, panicked)
		})
	}
	eachDoor("EndedDryRun", func(t testing.TB, h TxHarness[Tx], door Door[Tx], lease driver.Lease) {
		step := driver.Step{Lease: lease, From: positionAt(9), To: positionAt(9), DryRun: true}
		err, _ := h.end(t, step, door, endings["Nil"])
		if !door.Refused {
			h.wantEnded(t, door, step, err, false)
		}
	})
	eachDoor("EndedThenClaimed", func(t testing.TB, h TxHarness[Tx], door Door[Tx], lease driver.Lease) {
		if door.Refused || door.Close != nil || h.Features.WaitsForOpen { // something still holds the checkpoint
			return
		}
		next := leaseOf(lease.Partition, "b", 2)
		step := driver.Step{Lease: lease, From: positionAt(9), To: positionAt(12)}
		err, _ := h.end(t, step, door, func() error {
			if p, err := h.peer().Claim(suite.Context(t), next, incarnation); err != nil || p.Position != positionAt(9) {
				t.Errorf("%s: claimed %+v, %v; want position %+v", door.Name, p, err, positionAt(9))
			}
			return nil
		})
		if !errors.Is(err, driver.ErrHandlerEnded) && !errors.Is(err, driver.ErrFenced) || isHandlerError(err) {
			t.Errorf("%s: got %T %v, want ErrHandlerEnded or ErrFenced", door.Name, err, err)
		}
		h.wantPosition(t, lease.Partition, positionAt(9))
		h.commit(t, driver.Step{Lease: next, From: positionAt(9), To: positionAt(12)}, h.put("by the next owner"))
	})
	eachDoor("EndedBroken", func(t testing.TB, h TxHarness[Tx], door Door[Tx], lease driver.Lease) {
		if h.BreakLater == nil || door.Close != nil {
			return
		}
		step := driver.Step{Lease: lease, From: positionAt(9), To: positionAt(12), DeadLetters: []driver.DeadLetter{h.deadLetterNext(t, lease)}}
		broken := door
		broken.End = func(ctx context.Context, tx Tx) error { return errors.Join(h.BreakLater(ctx, tx), door.End(ctx, tx)) }
		err, _ := h.end(t, step, broken, endings["Nil"])
		if !isHandlerError(err) && !errors.Is(err, driver.ErrHandlerEnded) {
			t.Errorf("%s, with a violation that the commit finds: got %T %v", door.Name, err, err)
		}
		h.wantUnmoved(t, door, step)
	})
	return checks
}

// effectBefore and effectAfter are the effects of a step's handler, before and after it goes
// through a door.
func effectBefore(step driver.Step) string { return "before " + step.Lease.Partition }
func effectAfter(step driver.Step) string  { return "after " + step.Lease.Partition }

// end commits a step whose handler goes through a door and then does what ending does.
func (h *TxHarness[Tx]) end(t testing.TB, step driver.Step, door Door[Tx], ending func() error) (err error, panicked bool) {
	t.Helper()
	defer func() { panicked = recover() != nil }()
	return h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
		if err := h.Put(ctx, tx, effectBefore(step)); err != nil {
			t.Errorf("%s: put: %v", door.Name, err)
		}
		_ = door.End(ctx, tx)
		_ = h.Put(ctx, tx, effectAfter(step))
		return ending()
	}), false
}

// wantEnded fails the test if a step whose handler went through a door has lost anything, or blames
// the event for what the handler has done.
func (h *TxHarness[Tx]) wantEnded(t testing.TB, door Door[Tx], step driver.Step, err error, panicked bool) {
	t.Helper()
	switch {
	case panicked:
		h.wantUnmoved(t, door, step)
	case door.Refused && err == nil:
		h.wantPosition(t, step.Lease.Partition, step.To)
		for _, d := range step.DeadLetters {
			if _, stored := h.deadLetters(t)[d.Event.Sequence]; !stored {
				t.Errorf("%s: the step succeeded, and its dead letter is missing", door.Name)
			}
		}
		if !h.hasEffect(t, effectBefore(step)) {
			t.Errorf("%s: the step succeeded, and its effect is missing", door.Name)
		}
		return
	case door.Refused:
		wantHandlerError(t, door.Name, err, nil)
		h.wantUnmoved(t, door, step)
		if h.hasEffect(t, effectBefore(step)) {
			t.Errorf("%s: the handler's failure, and its effect is committed", door.Name)
		}
	default:
		suite.ErrorIs(t, door.Name, err, driver.ErrHandlerEnded)
		if isHandlerError(err) || errors.Is(err, driver.ErrUnknown) || errors.Is(err, driver.ErrFenced) {
			t.Errorf("%s: got %T %v, which says more than that the handler ended its transaction", door.Name, err, err)
		}
		h.wantUnmoved(t, door, step)
	}
	if door.Close != nil {
		suite.NoError(t, door.Name+": close", door.Close(suite.Context(t)))
	}
	h.claim(t, step.Lease)
	halt := driver.HaltRecord(10, "the handler ended its transaction")
	suite.NoError(t, door.Name+": halt", h.Store.RecordAttempt(suite.Context(t), step.Lease, step.From, halt))
	if got := h.claim(t, step.Lease).Attempt; got != halt || got.Halted() != "the handler ended its transaction" {
		t.Errorf("%s: claimed with %+v, want %+v", door.Name, got, halt)
	}
	h.commit(t, driver.Step{Lease: step.Lease, From: step.From, To: positionAt(13)}, h.put("again "+step.Lease.Partition))
	h.wantPosition(t, step.Lease.Partition, positionAt(13))
	if !h.hasEffect(t, "again "+step.Lease.Partition) {
		t.Errorf("%s: the next step's effect is missing", door.Name)
	}
}

// wantUnmoved fails the test unless checkpoint and dead letters are as before the step.
func (h *TxHarness[Tx]) wantUnmoved(t testing.TB, door Door[Tx], step driver.Step) {
	t.Helper()
	if got := h.checkpoint(t, step.Lease.Partition).Position; got != step.From {
		t.Errorf("%s: checkpoint is at %+v, want %+v: the step's events are lost", door.Name, got, step.From)
	}
	for _, d := range h.deadLetters(t) {
		if d.Event.Partition == step.Lease.Partition {
			t.Errorf("%s: dead letter of event %d was stored", door.Name, d.Event.Sequence)
		}
	}
}

// deadLetterNext is a dead letter with a number that no other one has.
func (h *TxHarness[Tx]) deadLetterNext(t testing.TB, lease driver.Lease) driver.DeadLetter {
	t.Helper()
	return deadLetterOf(lease.Partition, int64(100+len(h.deadLetters(t))))
}

func (h *TxHarness[Tx]) hasEffect(t testing.TB, key string) bool {
	t.Helper()
	got, err := h.Effects(suite.Context(t))
	suite.NoError(t, "read the effects", err)
	return slices.Contains(got, key)
}
