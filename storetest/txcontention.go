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

// claimed is what a Claim returned.
type claimed struct {
	progress driver.Checkpoint
	err      error
}

// contentionChecks are about transactions that meet others.
func contentionChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "ClaimMeetsCommit", Run: func(t testing.TB, h TxHarness[Tx]) {
			// The claim comes while the handler works, and the handler ends
			// soon after. Whichever wins, what Claim returned must be the final state.
			a := h.begin(t)
			var claim <-chan claimed
			var meanwhile claimed
			cut := false
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
				if err := h.Put(ctx, tx, "10"); err != nil {
					return err
				}
				claim = h.claimLater(t, leaseOf("0", "b", 2))
				meanwhile, cut = suite.Settled(claim)
				return nil
			})
			if claim == nil {
				t.Fatalf("commit: %v", err)
			}
			if !cut {
				meanwhile = <-claim
			}
			suite.NoError(t, "claim", meanwhile.err)
			h.wantOutcome(t, err, meanwhile.progress)
		}},
		{Name: "ClaimMeetsOpen", Run: func(t testing.TB, h TxHarness[Tx]) {
			// The handler of the old owner does not come to an end by itself.
			a := h.begin(t)
			release := make(chan struct{})
			opened := make(chan struct{})
			commit := suite.Spawn(t, func() error {
				return h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
					err := h.Put(ctx, tx, "10")
					close(opened)
					<-release
					return err
				})
			})
			defer func() {
				select {
				case <-release:
				default:
					close(release)
				}
			}()
			<-opened
			ctx := suite.Context(t)
			if h.Features.WaitsForOpen {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 4*suite.Moment)
				defer cancel()
			}
			p, err := h.peer().Claim(ctx, leaseOf("0", "b", 2), "incarnation 1")
			if !h.Features.WaitsForOpen {
				suite.NoError(t, "claim while the old owner's transaction is open", err)
				close(release)
				err := <-commit
				if err == nil {
					t.Error("commit of a transaction that a claim had ended: no error")
				}
				h.wantOutcome(t, err, p)
				return
			}
			if err == nil || errors.Is(err, driver.ErrFenced) {
				t.Errorf("claim while the old owner's transaction is open: got %+v, %v; want that it waits, as declared", p, err)
			}
			close(release)
			suite.NoError(t, "commit that a claim waited for", <-commit)
			h.wantOutcome(t, nil, h.claim(t, leaseOf("0", "b", 2)))
		}},
		{Name: "ResetMeetsCommit", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var reset <-chan error
			var wrong error
			cut := false
			err := h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx Tx) error {
				if err := h.Put(ctx, tx, "10"); err != nil {
					return err
				}
				reset = suite.Spawn(t, func() error {
					_, err := h.peer().Reset(suite.Context(t), testGroup, "0", "incarnation 1", positionAt(4), "set")
					return err
				})
				wrong, cut = suite.Settled(reset)
				return nil
			})
			if reset == nil {
				t.Fatalf("commit: %v", err)
			}
			if !cut {
				wrong = <-reset
			}
			suite.NoError(t, "reset", wrong)
			h.wantPosition(t, "0", positionAt(4))
			if err != nil {
				h.wantEffects(t)
			} else {
				h.wantEffects(t, "10")
			}
			wantFenced(t, "commit after the reset", h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(4), To: positionAt(5)}, h.put("5")))
		}},
		{Name: "SameStepAtOnce", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			for n := int64(9); n < 14; n++ {
				wins := 0
				for err := range race(t, 4, func(i int) error {
					s := h.Store
					if i%2 == 1 {
						s = h.peer()
					}
					return s.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(n), To: positionAt(n + 1)}, h.put(fmt.Sprint(n+1)))
				}) {
					switch {
					case err == nil:
						wins++
					case isHandlerError(err) || errors.Is(err, driver.ErrUnknown):
						t.Errorf("one of four equal steps at once: got %T %v, want nil, ErrFenced or that the database couldn't", err, err)
					}
				}
				if wins != 1 {
					t.Errorf("%d of 4 equal steps at once committed, want 1", wins)
				}
			}
			h.wantEffects(t, "10", "11", "12", "13", "14")
			h.wantPosition(t, "0", positionAt(14))
		}},
		{Name: "TwoEpochs", Run: func(t testing.TB, h TxHarness[Tx]) {
			// The owner of the old epoch commits step after step while another
			// claims and commits after it.
			h.begin(t)
			var want []string
			for epoch := int64(1); epoch < 12; epoch += 2 {
				a := leaseOf("0", "a", epoch)
				start := h.claim(t, a).Position.Sequence
				type run struct {
					done []string
					err  error
				}
				old := suite.Spawn(t, func() run {
					var r run
					for n := start; n < start+50; n++ {
						key := fmt.Sprint(n + 1)
						if r.err = h.Store.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(n), To: positionAt(n + 1)}, h.put(key)); r.err != nil {
							break
						}
						r.done = append(r.done, key)
					}
					return r
				})
				b := leaseOf("0", "b", epoch+1)
				p, err := h.peer().Claim(suite.Context(t), b, "incarnation 1")
				suite.NoError(t, "claim while the old owner commits", err)
				next := p.Position.Sequence + 1
				suite.NoError(t, "commit after the claim", h.peer().Commit(suite.Context(t), driver.Step{Lease: b, From: p.Position, To: positionAt(next)}, h.put(fmt.Sprint(next))))
				r := <-old
				if isHandlerError(r.err) || errors.Is(r.err, driver.ErrUnknown) {
					t.Errorf("the old owner's last commit: got %T %v, want ErrFenced or that the database couldn't", r.err, r.err)
				}
				if got := p.Position.Sequence - start; got != int64(len(r.done)) {
					t.Errorf("the old owner's commits returned nil %d times, the claim saw %d", len(r.done), got)
				}
				want = append(append(want, r.done...), fmt.Sprint(next))
			}
			h.wantEffects(t, want...)
			seen := slices.Compact(slices.Sorted(slices.Values(want)))
			if len(seen) != len(want) {
				t.Errorf("commits were repeated: %q", want)
			}
		}},
		{Name: "Partitions", Run: func(t testing.TB, h TxHarness[Tx]) {
			// Partitions have nothing to do with each other.
			const partitions, steps = 4, 10
			var want []string
			for p := range partitions {
				h.claim(t, leaseOf(fmt.Sprint(p), "a", 1))
				for n := range steps {
					want = append(want, fmt.Sprintf("%d of %d", n, p))
				}
			}
			for err := range race(t, partitions, func(p int) error {
				from := driver.Unset
				for n := range steps {
					to := positionAt(int64(n))
					step := driver.Step{Lease: leaseOf(fmt.Sprint(p), "a", 1), From: from, To: to}
					var err error
					for range 100 { // what the database couldn't do may be tried again
						err = h.Store.Commit(suite.Context(t), step, h.put(fmt.Sprintf("%d of %d", n, p)))
						if err == nil || isHandlerError(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
							break
						}
					}
					if err != nil {
						return err
					}
					from = to
				}
				return nil
			}) {
				suite.NoError(t, "commit beside others", err)
			}
			h.wantEffects(t, want...)
		}},
	}
}

// claimLater claims on a goroutine of its own, through the other store.
func (h *TxHarness[Tx]) claimLater(t testing.TB, lease driver.Lease) <-chan claimed {
	return suite.Spawn(t, func() claimed {
		p, err := h.peer().Claim(suite.Context(t), lease, "incarnation 1")
		return claimed{p, err}
	})
}

// wantOutcome checks that the outcome of the step from 9 to 10 with the effect "10"
// is what the concurrent claim returned, and stays so.
func (h *TxHarness[Tx]) wantOutcome(t testing.TB, outcome error, p driver.Checkpoint) {
	t.Helper()
	if isHandlerError(outcome) {
		t.Errorf("commit that met a claim: got %v, which blames the handler", outcome)
	}
	want, effects := positionAt(10), []string{"10"}
	if outcome != nil {
		want, effects = positionAt(9), nil
	}
	if p.Position != want || p.Owner != "b" || p.Epoch != 2 {
		t.Errorf("the commit ended with %v, the claim for b in epoch 2 returned %+v", outcome, p)
	}
	h.wantEffects(t, effects...)
	h.wantPosition(t, "0", want)
	step := driver.Step{Lease: leaseOf("0", "b", 2), From: want, To: positionAt(11)}
	suite.NoError(t, "commit after the claim", h.peer().Commit(suite.Context(t), step, h.put("11")))
	h.wantEffects(t, append(effects, "11")...)
}
