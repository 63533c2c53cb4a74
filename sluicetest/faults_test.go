package sluicetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// script is faults made of functions.
type script struct {
	outage func(op Op, lease sluice.Lease) error
	commit func(step driver.Step, apply func() error) error
}

func (s *script) Before(op Op, lease sluice.Lease) error {
	if s.outage == nil {
		return nil
	}
	return s.outage(op, lease)
}

func (s *script) Commit(step driver.Step, apply func() error) error {
	if s.commit == nil {
		return apply()
	}
	return s.commit(step, apply)
}

// writes are faults that come between writes too.
type writes struct {
	script
	write func(op Op, lease sluice.Lease, apply func() error) error
}

func (w *writes) Write(op Op, lease sluice.Lease, apply func() error) error {
	return w.write(op, lease, apply)
}

// scripted is a store at position 9 of lease a, and its faults.
func scripted(t *testing.T) (fixture, *Store, *script, sluice.Lease) {
	s := &script{}
	store := &Store{Faults: s}
	h := fixture{store}
	return h, store, s, h.begin(t)
}

var errCut = errors.New("connection reset by peer")

func TestOutageOfEveryOperation(t *testing.T) {
	h, store, s, a := scripted(t)
	calls := map[Op]func(ctx context.Context) error{
		OpClaim: func(ctx context.Context) error { _, err := store.Claim(ctx, a, ""); return err },
		OpBegin: func(ctx context.Context) error { return store.Begin(ctx, a, positionAt(9), positionAt(10)) },
		OpCommit: func(ctx context.Context) error {
			return store.Commit(ctx, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10"))
		},
		OpRecord: func(ctx context.Context) error {
			return store.RecordAttempt(ctx, a, positionAt(9), driver.AttemptRecord{Sequence: 10, Attempts: 1})
		},
		OpLeave:     func(ctx context.Context) error { return store.Leave(ctx, a) },
		OpReadDedup: func(ctx context.Context) error { _, err := store.ReadDedup(ctx, testGroup, "0"); return err },
		OpDue:       func(ctx context.Context) error { _, err := store.Due(ctx, testGroup, "0", 1); return err },
		OpRead:      func(ctx context.Context) error { _, err := store.Read(ctx, testGroup); return err },
		OpReset: func(ctx context.Context) error {
			_, err := store.Reset(ctx, testGroup, "0", "", positionAt(0), "set")
			return err
		},
		OpList: func(ctx context.Context) error {
			_, err := store.List(ctx, testGroup, sluice.DeadLetterFilter{})
			return err
		},
		OpGet: func(ctx context.Context) error { _, err := store.Get(ctx, testGroup, 1); return err },
		OpRedrive: func(ctx context.Context) error {
			_, err := store.Redrive(ctx, testGroup, sluice.DeadLetterFilter{}, time.Time{})
			return err
		},
		OpDiscard: func(ctx context.Context) error {
			_, err := store.Discard(ctx, testGroup, sluice.DeadLetterFilter{})
			return err
		},
		OpAdvance:  func(ctx context.Context) error { return store.Advance(ctx, a, "incarnation 1", positionAt(10), nil) },
		OpPark:     func(ctx context.Context) error { return store.Park(ctx, []sluice.DeadLetter{parked("0", 5)}) },
		OpSettle:   func(ctx context.Context) error { return store.Settle(ctx, testGroup, []int64{1}, nil) },
		OpSetAside: func(ctx context.Context) error { return store.SetAside(ctx, testGroup, "0", "", nil) },
		OpParked:   func(ctx context.Context) error { _, err := store.Parked(ctx, testGroup, "0", "", 0); return err },
		OpHeld:     func(ctx context.Context) error { _, err := store.Held(ctx, testGroup, "0", nil); return err },
		OpUncopied: func(ctx context.Context) error { _, err := store.Uncopied(ctx, testGroup, "0", 0, 1); return err },
		OpMarkCopied: func(ctx context.Context) error {
			return store.MarkCopied(ctx, testGroup, "0", []driver.ParkedEvent{{ID: 1}})
		},
	}
	before := h.progress(t)
	for op, call := range calls {
		var asked []Op
		s.outage = func(op Op, lease sluice.Lease) error {
			asked = append(asked, op)
			if lease.Group != testGroup {
				t.Errorf("%s: asked about group %v", op, lease.Group)
			}
			return errCut
		}
		suite.ErrorIs(t, string(op), call(suite.Context(t)), errCut)
		if !slices.Equal(asked, []Op{op}) {
			t.Errorf("%s: asked about %v", op, asked)
		}
	}
	s.outage = nil
	if after := h.progress(t); !reflect.DeepEqual(before, after) {
		t.Errorf("outages changed %+v to %+v", before, after)
	}
	h.effects(t)
}

func TestOutageDuringTheHandler(t *testing.T) {
	h, store, s, a := scripted(t)
	for what, handle := range map[string]func(err error) error{
		"told":   func(err error) error { return fmt.Errorf("insert: %w", err) },
		"hidden": func(error) error { return nil },
		"turned": func(error) error { return errors.New("another error") },
	} {
		n := 0
		s.outage = func(op Op, lease sluice.Lease) error {
			if op == OpInsert {
				if n++; n == 2 {
					return errCut
				}
			}
			return nil
		}
		err := store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
			if err := h.put("first")(ctx, tx); err != nil {
				return err
			}
			err := h.put("second")(ctx, tx)
			if again := h.put("third")(ctx, tx); again == nil {
				t.Error("a broken transaction took a write")
			}
			return handle(err)
		})
		suite.ErrorIs(t, "an outage that the handler has "+what, err, errCut)
		if blames(err) {
			t.Errorf("an outage that the handler has %s is held against it", what)
		}
	}
	h.effects(t)
	h.stands(t, positionAt(9))
}

func TestCommitLost(t *testing.T) {
	h, store, s, a := scripted(t)
	s.commit = func(driver.Step, func() error) error { return errCut }
	suite.ErrorIs(t, "commit", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10")), errCut)
	h.effects(t)
	h.stands(t, positionAt(9))
}

func TestCommitUnanswered(t *testing.T) {
	h, store, s, a := scripted(t)
	s.commit = func(step driver.Step, apply func() error) error {
		if step.To != positionAt(10) {
			t.Errorf("told of step %+v", step)
		}
		suite.NoError(t, "apply", apply())
		return sluice.ErrUnknown
	}
	suite.ErrorIs(t, "commit", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10")), sluice.ErrUnknown)
	h.effects(t, "10")
	h.stands(t, positionAt(10))
}

func TestCommitLate(t *testing.T) {
	unknown := func(t *testing.T) (fixture, *Store, sluice.Lease, func() error) {
		h, store, s, a := scripted(t)
		var late func() error
		s.commit = func(_ driver.Step, apply func() error) error {
			late, s.commit = apply, nil
			return sluice.ErrUnknown
		}
		suite.ErrorIs(t, "commit", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("late")), sluice.ErrUnknown)
		h.effects(t)
		return h, store, a, late
	}
	t.Run("in time", func(t *testing.T) {
		h, _, a, late := unknown(t)
		suite.NoError(t, "apply", late())
		if err := late(); err == nil {
			t.Error("applied twice")
		}
		h.effects(t, "late")
		if p := h.claim(t, a); p.Position != positionAt(10) {
			t.Errorf("claimed at %v after the late commit", p.Position)
		}
	})
	t.Run("after a claim", func(t *testing.T) {
		h, store, a, late := unknown(t)
		if p := h.claim(t, a); p.Position != positionAt(9) {
			t.Errorf("claimed at %v before the late commit", p.Position)
		}
		if err := late(); err == nil {
			t.Error("applied behind the claim's back")
		}
		suite.NoError(t, "commit again", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("again")))
		h.effects(t, "again")
	})
	t.Run("after a claim that does not end it", func(t *testing.T) {
		h, store, a, late := unknown(t)
		store.Unsafe.LateCommit = true
		h.claim(t, a)
		suite.NoError(t, "apply", late())
		fenced(t, "commit again", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("again")))
		h.effects(t, "late")
	})
	t.Run("after the same step was done again", func(t *testing.T) {
		h, store, a, late := unknown(t)
		store.Unsafe.LateCommit = true
		h.claim(t, a)
		suite.NoError(t, "commit again", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("again")))
		fenced(t, "apply", late())
		h.effects(t, "again")
	})
	t.Run("after another has claimed", func(t *testing.T) {
		h, store, _, late := unknown(t)
		store.Unsafe.LateCommit = true
		h.claim(t, leaseOf("0", "b", 2))
		fenced(t, "apply", late())
		h.effects(t)
	})
}

func TestCommitAnsweredWithoutBeingApplied(t *testing.T) {
	h, store, s, a := scripted(t)
	s.commit = func(driver.Step, func() error) error { return nil }
	if err := store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10")); err == nil {
		t.Error("faults that answer for nothing are believed")
	}
}

func TestSplitCommitLeavesEffectsBehind(t *testing.T) {
	h, store, s, a := scripted(t)
	store.Unsafe.SplitCommit = true
	s.commit = func(driver.Step, func() error) error { return errCut }
	suite.ErrorIs(t, "commit", store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10")), errCut)
	h.effects(t, "10")
	h.stands(t, positionAt(9))
}

func TestWriteFaults(t *testing.T) {
	w := &writes{}
	store := &Store{Faults: w}
	h := fixture{store}
	a, b := leaseOf("0", "a", 1), leaseOf("0", "b", 2)
	h.claim(t, a)
	done := []driver.SequenceRange{{First: 12, Last: 13}}
	calls := map[Op]func() error{
		OpAdvance: func() error { return store.Advance(suite.Context(t), a, "incarnation 1", positionAt(10), done) },
		OpPark:    func() error { return store.Park(suite.Context(t), []sluice.DeadLetter{parked("0", 5)}) },
		OpSettle:  func() error { return store.Settle(suite.Context(t), testGroup, []int64{1}, nil) },
	}

	late := make(map[Op]func() error)
	for op, call := range calls {
		w.write = func(asked Op, lease sluice.Lease, apply func() error) error {
			if asked != op || lease.Group != testGroup {
				t.Errorf("%s: asked about %s of group %v", op, asked, lease.Group)
			}
			late[op] = apply
			return errCut
		}
		suite.ErrorIs(t, string(op), call(), errCut)
	}
	if p := h.claim(t, a); p.Position != driver.Unset || len(h.list(t)) > 0 {
		t.Errorf("writes that were lost left %+v, %v", p, h.list(t))
	}
	done[0].Last = 99 // whoever sent it may use its memory again
	suite.NoError(t, "a late advance", late[OpAdvance]())
	suite.NoError(t, "a late park", late[OpPark]())
	if p := h.claim(t, a); p.Position != positionAt(10) || !slices.Equal(p.Done, []driver.SequenceRange{{First: 12, Last: 13}}) || len(h.list(t)) != 1 {
		t.Errorf("late writes left %+v, %v", p, h.list(t))
	}
	for _, op := range []Op{OpAdvance, OpPark} {
		if late[op]() == nil {
			t.Errorf("%s: applied twice", op)
		}
	}
	w.write = func(_ Op, _ sluice.Lease, apply func() error) error { return apply() }
	_, err := store.Redrive(suite.Context(t), testGroup, sluice.DeadLetterFilter{}, time.Time{})
	suite.NoError(t, "redrive", err)
	suite.NoError(t, "a late settle", late[OpSettle]())
	if left := h.list(t); len(left) > 0 {
		t.Errorf("a late settle left %v", left)
	}

	suite.NoError(t, "advance", store.Advance(suite.Context(t), a, "incarnation 1", positionAt(20), nil))
	w.write = func(_ Op, _ sluice.Lease, apply func() error) error { late[OpAdvance] = apply; return errCut }
	suite.ErrorIs(t, "advance", store.Advance(suite.Context(t), a, "incarnation 1", positionAt(30), nil), errCut)
	h.claim(t, b)
	fenced(t, "an advance that comes after another's claim", late[OpAdvance]())
	if p := h.claim(t, b); p.Position != positionAt(20) {
		t.Errorf("it left %+v", p)
	}
	for op, call := range calls {
		w.write = func(Op, sluice.Lease, func() error) error { return nil }
		if call() == nil {
			t.Errorf("%s: faults that answer for nothing are believed", op)
		}
	}
}
