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
)

// script is faults made of functions.
type script struct {
	before func(op Op, lease sluice.Lease) error
	commit func(step sluice.Step, apply func() error) error
}

func (s *script) Before(op Op, lease sluice.Lease) error {
	if s.before == nil {
		return nil
	}
	return s.before(op, lease)
}

func (s *script) Commit(step sluice.Step, apply func() error) error {
	if s.commit == nil {
		return apply()
	}
	return s.commit(step, apply)
}

// scripted is a store at position 9 of lease a, and its faults.
func scripted(t *testing.T) (TxHarness[*Tx], *Store, *script, sluice.Lease) {
	s := &script{}
	store := &Store{Faults: s}
	h := harness(store)
	return h, store, s, h.begin(t)
}

var errCut = errors.New("connection reset by peer")

func TestOutageOfEveryOperation(t *testing.T) {
	h, store, s, a := scripted(t)
	calls := map[Op]func(ctx context.Context) error{
		OpClaim: func(ctx context.Context) error { _, err := store.Claim(ctx, a, ""); return err },
		OpCommit: func(ctx context.Context) error {
			return store.Commit(ctx, sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("10"))
		},
		OpRecord: func(ctx context.Context) error {
			return store.Record(ctx, a, at(9), sluice.Trial{Sequence: 10, Attempts: 1})
		},
		OpLeave: func(ctx context.Context) error { return store.Leave(ctx, a) },
		OpDue:   func(ctx context.Context) error { _, err := store.Due(ctx, testGroup, "0", 1); return err },
		OpRead:  func(ctx context.Context) error { _, err := store.Read(ctx, testGroup); return err },
		OpReset: func(ctx context.Context) error { _, err := store.Reset(ctx, testGroup, "0", "", at(0)); return err },
		OpList: func(ctx context.Context) error {
			_, err := store.List(ctx, testGroup, sluice.DeadLetterFilter{})
			return err
		},
		OpGet: func(ctx context.Context) error { _, err := store.Get(ctx, testGroup, 1); return err },
		OpRetry: func(ctx context.Context) error {
			_, err := store.Retry(ctx, testGroup, sluice.DeadLetterFilter{}, time.Time{})
			return err
		},
		OpDiscard: func(ctx context.Context) error {
			_, err := store.Discard(ctx, testGroup, sluice.DeadLetterFilter{})
			return err
		},
	}
	before := h.progress(t, "0")
	for op, call := range calls {
		var asked []Op
		s.before = func(op Op, lease sluice.Lease) error {
			asked = append(asked, op)
			if lease.Group != testGroup {
				t.Errorf("%s: asked about group %v", op, lease.Group)
			}
			return errCut
		}
		is(t, string(op), call(limited(t)), errCut)
		if !slices.Equal(asked, []Op{op}) {
			t.Errorf("%s: asked about %v", op, asked)
		}
	}
	s.before = nil
	if after := h.progress(t, "0"); !reflect.DeepEqual(before, after) {
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
		s.before = func(op Op, lease sluice.Lease) error {
			if op == OpInsert {
				if n++; n == 2 {
					return errCut
				}
			}
			return nil
		}
		err := store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, func(ctx context.Context, tx *Tx) error {
			if err := h.Put(ctx, tx, "first"); err != nil {
				return err
			}
			err := h.Put(ctx, tx, "second")
			if again := h.Put(ctx, tx, "third"); again == nil {
				t.Error("a broken transaction took a write")
			}
			return handle(err)
		})
		is(t, "an outage that the handler has "+what, err, errCut)
		if blames(err) {
			t.Errorf("an outage that the handler has %s is held against it", what)
		}
	}
	h.effects(t)
	h.stands(t, "0", at(9))
}

func TestCommitLost(t *testing.T) {
	h, store, s, a := scripted(t)
	s.commit = func(sluice.Step, func() error) error { return errCut }
	is(t, "commit", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("10")), errCut)
	h.effects(t)
	h.stands(t, "0", at(9))
}

func TestCommitUnanswered(t *testing.T) {
	h, store, s, a := scripted(t)
	s.commit = func(step sluice.Step, apply func() error) error {
		if step.To != at(10) {
			t.Errorf("told of step %+v", step)
		}
		ok(t, "apply", apply())
		return sluice.ErrUnknown
	}
	is(t, "commit", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("10")), sluice.ErrUnknown)
	h.effects(t, "10")
	h.stands(t, "0", at(10))
}

func TestCommitLate(t *testing.T) {
	unknown := func(t *testing.T) (TxHarness[*Tx], *Store, sluice.Lease, func() error) {
		h, store, s, a := scripted(t)
		var late func() error
		s.commit = func(_ sluice.Step, apply func() error) error {
			late, s.commit = apply, nil
			return sluice.ErrUnknown
		}
		is(t, "commit", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("late")), sluice.ErrUnknown)
		h.effects(t)
		return h, store, a, late
	}
	t.Run("in time", func(t *testing.T) {
		h, _, a, late := unknown(t)
		ok(t, "apply", late())
		if err := late(); err == nil {
			t.Error("applied twice")
		}
		h.effects(t, "late")
		if p := h.claim(t, a); p.Position != at(10) {
			t.Errorf("claimed at %v after the late commit", p.Position)
		}
	})
	t.Run("after a claim", func(t *testing.T) {
		h, store, a, late := unknown(t)
		if p := h.claim(t, a); p.Position != at(9) {
			t.Errorf("claimed at %v before the late commit", p.Position)
		}
		if err := late(); err == nil {
			t.Error("applied behind the claim's back")
		}
		ok(t, "commit again", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("again")))
		h.effects(t, "again")
	})
	t.Run("after a claim that does not end it", func(t *testing.T) {
		h, store, a, late := unknown(t)
		store.Unsafe.LateCommit = true
		h.claim(t, a)
		ok(t, "apply", late())
		fenced(t, "commit again", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("again")))
		h.effects(t, "late")
	})
	t.Run("after the same step was done again", func(t *testing.T) {
		h, store, a, late := unknown(t)
		store.Unsafe.LateCommit = true
		h.claim(t, a)
		ok(t, "commit again", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("again")))
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
	s.commit = func(sluice.Step, func() error) error { return nil }
	if err := store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("10")); err == nil {
		t.Error("faults that answer for nothing are believed")
	}
}

func TestSplitCommitLeavesEffectsBehind(t *testing.T) {
	h, store, s, a := scripted(t)
	store.Unsafe.SplitCommit = true
	s.commit = func(sluice.Step, func() error) error { return errCut }
	is(t, "commit", store.Commit(limited(t), sluice.Step{Lease: a, From: at(9), To: at(10)}, h.put("10")), errCut)
	h.effects(t, "10")
	h.stands(t, "0", at(9))
}
