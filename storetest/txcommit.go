package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// commitChecks are about transactions that are alone.
func commitChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "Commit", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(12)}, h.put("10", "11", "12"))
			h.wantEffects(t, "10", "11", "12")
			h.wantPosition(t, "0", positionAt(12))
			if p := h.claim(t, a); p.Position != positionAt(12) {
				t.Errorf("claimed at %+v, want %+v", p.Position, positionAt(12))
			}
			h.commit(t, driver.Step{Lease: a, From: positionAt(12), To: positionAt(13)}, h.put("13"))
			h.wantEffects(t, "10", "11", "12", "13")
		}},
		{Name: "CommitBySequence", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.commit(t, driver.Step{Lease: a, From: driver.Position{Sequence: 9, Offset: "not the one stored"}, To: positionAt(10)}, h.put("10"))
			h.commit(t, driver.Step{Lease: a, From: driver.Position{Sequence: 10}, To: driver.Position{Sequence: 11}}, h.put("11"))
			h.wantPosition(t, "0", driver.Position{Sequence: 11})
			h.wantEffects(t, "10", "11")
		}},
		{Name: "CommitInPlace", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.claim(t, leaseOf("0", "a", 2))
			a.Epoch = 2
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9)}, h.put("x"))
			h.wantEffects(t, "x")
			if p := h.checkpoint(t, "0"); p.Position != positionAt(9) || p.Claims != 2 {
				t.Errorf("after a step that moves nothing: %+v, want position %+v and 2 claims", p, positionAt(9))
			}
		}},
		{Name: "DryRun", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), DryRun: true}
			h.commit(t, step, h.put("10"))
			refused := errors.New("no")
			wantHandlerError(t, "dry run of a handler that fails", h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
				return errors.Join(h.Put(ctx, tx, "11"), refused)
			}), refused)
			wantHandlerError(t, "dry run of a write that the database refuses", h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
				return h.Break(ctx, tx)
			}), nil)
			fenced := step
			fenced.Lease.Epoch++
			wantFenced(t, "dry run in an epoch never claimed", h.Store.Commit(suite.Context(t), fenced, h.put("12")))
			h.wantEffects(t)
			h.wantPosition(t, "0", positionAt(9))
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("10"))
			h.wantEffects(t, "10")
		}},
		{Name: "Fence", Run: func(t testing.TB, h TxHarness[Tx]) {
			h.begin(t)
			b := leaseOf("0", "b", 5)
			h.claim(t, b)
			other := b
			other.Group = otherGroups[0]
			for what, step := range map[string]driver.Step{
				"an earlier epoch and owner": {Lease: leaseOf("0", "a", 1), From: positionAt(9), To: positionAt(10)},
				"an earlier epoch":           {Lease: leaseOf("0", "b", 4), From: positionAt(9), To: positionAt(10)},
				"an epoch never claimed":     {Lease: leaseOf("0", "b", 6), From: positionAt(9), To: positionAt(10)},
				"another owner":              {Lease: leaseOf("0", "a", 5), From: positionAt(9), To: positionAt(10)},
				"a position behind":          {Lease: b, From: positionAt(8), To: positionAt(10)},
				"a position ahead":           {Lease: b, From: positionAt(10), To: positionAt(11)},
				"an unset position":          {Lease: b, From: driver.Unset, To: positionAt(10)},
				"a position that is To":      {Lease: b, From: positionAt(8), To: positionAt(9)},
				"a partition never claimed":  {Lease: leaseOf("1", "b", 5), From: positionAt(9), To: positionAt(10)},
				"a group never claimed":      {Lease: other, From: positionAt(9), To: positionAt(10)},
				"another position, in place": {Lease: b, From: positionAt(8), To: positionAt(8)},
			} {
				called := false
				step.DeadLetters = []driver.DeadLetter{deadLetterOf("0", 10)}
				wantFenced(t, "commit from "+what, h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
					called = true
					return h.Put(ctx, tx, what)
				}))
				if called {
					t.Errorf("commit from %s: the handler was called", what)
				}
			}
			h.wantEffects(t)
			h.wantPosition(t, "0", positionAt(9))
			if found := h.deadLetters(t); len(found) != 0 {
				t.Errorf("a fenced step left dead letters: %v", found)
			}
			h.commit(t, driver.Step{Lease: b, From: positionAt(9), To: positionAt(10)}, h.put("10"))
			h.wantEffects(t, "10")
		}},
		{Name: "DeadLettersInStep", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(12), DeadLetters: []driver.DeadLetter{deadLetterOf("0", 11)}}
			lost := errors.New("no")
			wantHandlerError(t, "commit", h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
				return errors.Join(h.Put(ctx, tx, "10"), lost)
			}), lost)
			if found := h.deadLetters(t); len(found) != 0 {
				t.Errorf("a step that was rolled back left dead letters: %v", found)
			}
			h.commit(t, step, h.put("10", "12"))
			h.wantEffects(t, "10", "12")
			if found := h.deadLetters(t); len(found) != 1 || found[11].Error != "event 11 failed" {
				t.Errorf("got dead letters %v, want that of event 11", found)
			}
		}},
		{Name: "LargeBatch", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			const n = 1000
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9 + 2*n)}
			var keys []string
			for i := range int64(n) {
				keys = append(keys, fmt.Sprint(10+2*i))
				step.DeadLetters = append(step.DeadLetters, deadLetterOf("0", 11+2*i))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*suite.Patience) // a database may take a while for so many statements
			defer cancel()
			suite.NoError(t, "commit a large batch", h.Store.Commit(ctx, step, h.put(keys...)))
			h.wantEffects(t, keys...)
			if found := h.deadLetters(t); len(found) != n {
				t.Errorf("%d dead letters, want %d", len(found), n)
			}
		}},
	}
}

// failureChecks are about transactions that must not take effect.
func failureChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	// untouched notes what a failed step left behind, and sees that the next
	// one works.
	untouched := func(t testing.TB, h TxHarness[Tx], a driver.Lease) {
		t.Helper()
		h.wantEffects(t)
		h.wantPosition(t, "0", positionAt(9))
		h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, h.put("good"))
		h.wantEffects(t, "good")
		h.wantPosition(t, "0", positionAt(10))
	}
	return []suite.Check[TxHarness[Tx]]{
		{Name: "HandlerError", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			no := &driver.EventError{Index: 1, Err: driver.Reject(errors.New("no"))}
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
				return errors.Join(h.Put(ctx, tx, "bad"), no)
			})
			wantHandlerError(t, "commit", err, sluice.ErrRejected)
			if e, found := errors.AsType[*driver.EventError](err); !found || e != no {
				t.Errorf("commit: %v does not lead to the handler's own error", err)
			}
			untouched(t, h, a)
		}},
		{Name: "DatabaseRefuses", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var refusal error
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
				if err := h.Put(ctx, tx, "bad"); err != nil {
					return err
				}
				refusal = h.Break(ctx, tx)
				return fmt.Errorf("second table: %w", refusal)
			})
			if refusal == nil {
				t.Fatal("Break returned no error")
			}
			wantHandlerError(t, "commit", err, refusal)
			untouched(t, h, a)
		}},
		{Name: "DatabaseRefusesLast", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			if h.BreakLater == nil {
				h.BreakLater = h.Break // which then is the handler's last write
			}
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10), DeadLetters: []driver.DeadLetter{deadLetterOf("0", 10)}}, func(ctx context.Context, tx Tx) error {
				if err := h.Put(ctx, tx, "bad"); err != nil {
					return err
				}
				return h.BreakLater(ctx, tx)
			})
			wantHandlerError(t, "commit", err, nil)
			if found := h.deadLetters(t); len(found) != 0 {
				t.Errorf("a step that was refused left dead letters: %v", found)
			}
			untouched(t, h, a)
		}},
		{Name: "MissingTable", Run: func(t testing.TB, h TxHarness[Tx]) {
			// It may be missing for every event, or for one: another event that runs the statement
			// decides. A handler's own word on the event counts more.
			a := h.begin(t)
			if h.Missing == nil {
				return
			}
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}
			refused := errors.New("decoded wrongly")
			for name, handler := range map[string]func(error) error{
				"an error":        func(err error) error { return fmt.Errorf("write: %w", errors.Join(err, refused)) },
				"its text":        func(err error) error { return fmt.Errorf("write: %v: %w", err, refused) },
				"a rejected one":  func(err error) error { return &rejected{errors.Join(err, refused)} },
				"a rejected text": func(err error) error { return &rejected{fmt.Errorf("%v: %w", err, refused)} },
			} {
				err := h.Store.Commit(suite.Context(t), step, func(ctx context.Context, tx Tx) error {
					return handler(errors.Join(h.Put(ctx, tx, "bad"), h.Missing(ctx, tx)))
				})
				what := "write to a table that is missing, and return " + name
				wantHandlerError(t, what, err, refused)
				failed, _ := errors.AsType[*driver.HandlerError](err)
				if isRejected := strings.Contains(name, "rejected"); failed != nil && (len(failed.Statements) == 0) != isRejected {
					t.Errorf("%s: statements %q", what, failed.Statements)
				}
				if failed == nil || len(failed.Statements) == 0 {
					continue
				}
				trial := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), DryRun: true, Witness: failed.Statements}
				suite.ErrorIs(t, "dry run without the statement", h.Store.Commit(suite.Context(t), trial, h.put("10")), driver.ErrNotRun)
				trial.Witness = nil
				h.commit(t, trial, h.put("10"))
			}
			untouched(t, h, a)
		}},
		{Name: "TimeLimit", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			if h.TakeTooLong == nil {
				return
			}
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}
			slow := func(ctx context.Context, tx Tx) error {
				return fmt.Errorf("write: %w", errors.Join(h.Put(ctx, tx, "bad"), h.TakeTooLong(ctx, tx)))
			}
			err := h.Store.Commit(suite.Context(t), step, slow)
			wantOutage(t, "statement that takes too long", err)
			suite.ErrorIs(t, "statement that takes too long", err, driver.ErrTimeLimit)
			step.To, step.DryRun = positionAt(9), true
			suite.ErrorIs(t, "dry run of a statement that takes too long", h.Store.Commit(suite.Context(t), step, slow), driver.ErrTimeLimit)
			untouched(t, h, a)
		}},
		{Name: "RefusalIgnored", Run: func(t testing.TB, h TxHarness[Tx]) {
			// Databases differ in what is left of a transaction after an error.
			// Either way it must be all of what is reported.
			a := h.begin(t)
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(11)}, func(ctx context.Context, tx Tx) error {
				if err := h.Put(ctx, tx, "10"); err != nil {
					return err
				}
				if h.Break(ctx, tx) == nil {
					return errors.New("nothing was refused")
				}
				_ = h.Put(ctx, tx, "10 again")
				return nil
			})
			if err != nil {
				wantHandlerError(t, "commit", err, nil)
				untouched(t, h, a)
				return
			}
			h.wantPosition(t, "0", positionAt(11))
			h.wantEffects(t, "10", "10 again")
		}},
		{Name: "Cancelled", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			cause := errors.New("lease ran out")
			for _, ret := range []func(ctx context.Context, err error) error{
				func(context.Context, error) error { return nil },
				func(_ context.Context, err error) error { return err },
				func(ctx context.Context, _ error) error { return ctx.Err() },
				func(ctx context.Context, _ error) error { return context.Cause(ctx) },
			} {
				ctx, cancel := context.WithCancelCause(suite.Context(t))
				called := false
				err := h.Store.Commit(ctx, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10), DeadLetters: []driver.DeadLetter{deadLetterOf("0", 10)}}, func(ctx context.Context, tx Tx) error {
					called = true
					if err := h.Put(ctx, tx, "bad"); err != nil {
						return err
					}
					cancel(cause)
					if ctx.Err() == nil {
						t.Error("the handler's context does not end with the caller's")
					}
					return ret(ctx, h.Put(ctx, tx, "late"))
				})
				cancel(nil)
				if !called {
					t.Errorf("the handler was not called: %v", err)
				}
				if err == nil || isHandlerError(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
					t.Errorf("cancelled during the handler: got %T %v, want an error of no special kind: nothing was sent", err, err)
				}
			}
			if found := h.deadLetters(t); len(found) != 0 {
				t.Errorf("a cancelled step left dead letters: %v", found)
			}
			untouched(t, h, a)
		}},
		{Name: "CancelledBefore", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			ctx, cancel := context.WithCancel(suite.Context(t))
			cancel()
			called := false
			err := h.Store.Commit(ctx, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(context.Context, Tx) error {
				called = true
				return nil
			})
			if called || err == nil || isHandlerError(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
				t.Errorf("cancelled before: handler called %v, got %T %v; want not called, and an error of no special kind", called, err, err)
			}
			if _, err := h.Store.Claim(ctx, leaseOf("0", "b", 2), ""); err == nil || errors.Is(err, driver.ErrFenced) {
				t.Errorf("claim with a cancelled context: got %v", err)
			}
			untouched(t, h, a)
		}},
		{Name: "AfterTheEnd", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var kept Tx
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
				kept = tx
				return h.Put(ctx, tx, "10")
			})
			if err := h.Put(suite.Context(t), kept, "late"); err == nil {
				t.Error("a write after the commit was taken")
			}
			h.wantEffects(t, "10")
		}},
	}
}

// rejected is the error of a handler that rejects an event.
type rejected struct{ error }

func (r *rejected) Unwrap() error        { return r.error }
func (r *rejected) Is(target error) bool { return target == driver.ErrRejected }
