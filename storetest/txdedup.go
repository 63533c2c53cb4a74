package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// dedupAt is when the log took the events of seenBy, in the microseconds that
// every database has.
var dedupAt = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

// dedupStateOf is what a step leaves of an origin, its ids those of the step.
func dedupStateOf(origin string, epoch, low, top int64) driver.DedupState {
	return driver.DedupState{Origin: origin, Epoch: epoch, Low: low, Top: top, Forget: low, At: dedupAt, IDs: fmt.Sprintf("0:%d;7:%d+3,2", top-1, top-8)}
}

// wantDedup fails the test if the deduplication state is not as wanted. Of several
// origins in one step the order is open.
func (h *TxHarness[Tx]) wantDedup(t testing.TB, what string, store driver.TxStore[Tx], partition string, want ...driver.DedupState) {
	t.Helper()
	got, err := store.ReadDedup(suite.Context(t), testGroup, partition)
	suite.NoError(t, "read dedup state", err)
	same := func(a, b driver.DedupState) bool {
		return a.Origin == b.Origin && a.Epoch == b.Epoch && a.Low == b.Low && a.Top == b.Top && a.At.Equal(b.At) && a.IDs == b.IDs
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: partition %s has dedup state %+v, want %+v", what, partition, got, want)
	}
}

// dedupChecks are about what steps leave of causation IDs.
func dedupChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	step := func(l driver.Lease, from, to int64, seen ...driver.DedupState) driver.Step {
		return driver.Step{Lease: l, From: positionAt(from), To: positionAt(to), Dedup: seen}
	}
	return []suite.Check[TxHarness[Tx]]{
		{Name: "DedupCommits", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.wantDedup(t, "before the first", h.Store, "0")
			// Steps are in the order of numbers, not of their texts, and not of
			// origins.
			first, second, third := dedupStateOf("z@1/%2F0", 3, 40, 50), dedupStateOf("b@1/0", 3, -1, 51), dedupStateOf("b@1/0/retry", 0, -1, 1<<40)
			h.commit(t, step(a, 9, 99, first), h.put("99"))
			h.commit(t, step(a, 99, 100, second), nil)
			h.commit(t, step(a, 100, 1000, third), h.put("1000"))
			h.commit(t, driver.Step{Lease: a, From: positionAt(1000), To: positionAt(1001)}, nil)
			h.wantDedup(t, "after three steps", h.Store, "0", first, second, third)
			h.claim(t, leaseOf("0", "b", 2))
			h.wantDedup(t, "after another's claim", h.peer(), "0", first, second, third)
			h.wantDedup(t, "another partition", h.Store, "1")
			for _, g := range otherGroups {
				if list, err := h.Store.ReadDedup(suite.Context(t), g, "0"); err != nil || len(list) > 0 {
					t.Errorf("group %v has seen %+v, %v", g, list, err)
				}
			}
		}},
		{Name: "DedupRollsBack", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			kept := dedupStateOf("b@1/0", 3, 9, 20)
			h.commit(t, step(a, 9, 12, kept), nil)
			next := step(a, 12, 15, dedupStateOf("b@1/0", 3, 20, 30), dedupStateOf("c@1/0", 3, -1, 30))
			next.Dedup[0].Forget, next.DedupSince = math.MaxInt64, dedupAt.Add(time.Hour)
			no := errors.New("no")
			wantHandlerError(t, "commit", h.Store.Commit(suite.Context(t), next, func(ctx context.Context, tx Tx) error {
				return errors.Join(h.Put(ctx, tx, "13"), no)
			}), no)
			h.wantDedup(t, "after the handler's error", h.Store, "0", kept)
			h.claim(t, leaseOf("0", "b", 2))
			wantFenced(t, "a step of an earlier owner", h.Store.Commit(suite.Context(t), next, nil))
			h.wantDedup(t, "after a fenced step", h.Store, "0", kept)
			late := step(leaseOf("0", "b", 2), 11, 15, next.Dedup...)
			wantFenced(t, "a step from another position", h.Store.Commit(suite.Context(t), late, nil))
			h.wantDedup(t, "after a step from another position", h.Store, "0", kept)
		}},
		{Name: "DedupForgotten", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.commit(t, step(a, 9, 10, dedupStateOf("b@1/0", 1, -1, 20), dedupStateOf("b@1/1", 1, -1, 20)), nil)
			h.commit(t, step(a, 10, 11, dedupStateOf("b@1/0", 1, -1, 30)), nil)
			h.commit(t, step(a, 11, 12, dedupStateOf("b@1/0", 1, 20, 25)), nil)
			h.wantDedup(t, "a watermark that passes one step's", h.Store, "0", dedupStateOf("b@1/1", 1, -1, 20), dedupStateOf("b@1/0", 1, -1, 30), dedupStateOf("b@1/0", 1, 20, 25))
			h.commit(t, step(a, 12, 13, dedupStateOf("b@1/0", 1, 30, 30)), nil)
			h.wantDedup(t, "a watermark that passes all", h.Store, "0", dedupStateOf("b@1/1", 1, -1, 20), dedupStateOf("b@1/0", 1, 30, 30))
			reset := dedupStateOf("b@1/1", 2, 5, 7)
			reset.Forget = math.MaxInt64
			h.commit(t, step(a, 13, 14, reset), nil)
			h.wantDedup(t, "an origin that starts again", h.Store, "0", dedupStateOf("b@1/0", 1, 30, 30), reset)
		}},
		{Name: "DedupOriginForgotten", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			b, c := dedupStateOf("b@1/0", 1, -1, 20), dedupStateOf("c@1/0", 1, -1, 20)
			h.commit(t, step(a, 9, 10, b, dedupStateOf("b@1/0/retry", 1, -1, 20)), nil)
			h.commit(t, step(a, 10, 11, c), nil)
			next := step(a, 11, 12)
			next.DedupForgotten = []string{"b@1/0/retry", "never seen"}
			h.commit(t, next, nil)
			h.wantDedup(t, "one origin forgotten", h.Store, "0", b, c)
			next = step(a, 12, 13, dedupStateOf("b@1/0", 2, -1, 30))
			next.DedupForgotten = []string{"b@1/0", "c@1/0"}
			h.commit(t, next, nil)
			h.wantDedup(t, "one that is seen again in the same step", h.Store, "0", next.Dedup...)
		}},
		{Name: "DedupExpires", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			old, young := dedupStateOf("b@1/0", 1, -1, 20), dedupStateOf("c@1/0", 1, -1, 20)
			young.At = dedupAt.Add(time.Microsecond)
			h.commit(t, step(a, 9, 10, old, young), nil)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), Dedup: []driver.DedupState{old}}, nil)
			last := step(a, 10, 11, dedupStateOf("d@1/0", 1, -1, 20))
			last.Dedup[0].At, last.DedupSince = dedupAt.Add(time.Hour), young.At
			h.commit(t, last, nil)
			h.wantDedup(t, "what is older", h.Store, "0", young, last.Dedup[0])
			h.wantDedup(t, "another partition", h.Store, "1", old)
		}},
		{Name: "DedupReset", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			early, late := dedupStateOf("b@1/0", 1, -1, 20), dedupStateOf("b@1/0", 1, -1, 30)
			h.commit(t, step(a, 9, 10, early), nil)
			h.commit(t, step(a, 10, 20, late), nil)
			reset := func(to driver.Position) {
				t.Helper()
				_, err := h.Store.Reset(suite.Context(t), testGroup, "0", "incarnation 1", to, "set")
				suite.NoError(t, "reset", err)
			}
			reset(positionAt(25))
			h.wantDedup(t, "set forward", h.Store, "0", early, late)
			reset(positionAt(19))
			h.wantDedup(t, "set back", h.Store, "0", early)
			c := leaseOf("0", "c", 9)
			h.claim(t, c)
			h.commit(t, step(c, 19, 20, late), nil)
			h.wantDedup(t, "and on again", h.Store, "0", early, late)
			reset(driver.Origin)
			h.wantDedup(t, "set to the beginning", h.Store, "0")
		}},
		{Name: "DedupMany", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var all []driver.DedupState
			for i := range int64(300) {
				all = append(all, dedupStateOf(fmt.Sprintf("b@1/%03d", i), i, -1, i+100))
			}
			h.commit(t, step(a, 9, 10, all...), h.put("10"))
			got, err := h.Store.ReadDedup(suite.Context(t), testGroup, "0")
			suite.NoError(t, "read dedup state", err)
			slices.SortFunc(got, func(a, b driver.DedupState) int { return int(a.Epoch - b.Epoch) })
			if len(got) != len(all) || got[299].Origin != all[299].Origin || got[299].IDs != all[299].IDs {
				t.Errorf("%d origins seen in one step, want %d", len(got), len(all))
			}
			again := step(a, 10, 11)
			for i := range all {
				all[i].Forget = math.MaxInt64
			}
			again.Dedup = all
			h.commit(t, again, nil)
			if got, err := h.Store.ReadDedup(suite.Context(t), testGroup, "0"); err != nil || len(got) != len(all) {
				t.Errorf("%d after each was forgotten and seen again, %v; want %d", len(got), err, len(all))
			}
		}},
	}
}
