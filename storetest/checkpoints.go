package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestCheckpoints is the conformance suite of [driver.CheckpointStore].
// Every case asks new for a store without checkpoints.
func TestCheckpoints(t *testing.T, new func(t testing.TB) CheckpointHarness) {
	suite.Run(t, checkpointChecks(), new)
}

func checkpointChecks() []suite.Check[CheckpointHarness] {
	var all []suite.Check[CheckpointHarness]
	all = append(all, ownerChecks()...)
	all = append(all, advanceChecks()...)
	all = append(all, raceChecks()...)
	return append(all, silenceOfCheckpoints)
}

// ownerChecks are about whose a checkpoint is: Claim, Leave, Read, Reset.
func ownerChecks() []suite.Check[CheckpointHarness] {
	return []suite.Check[CheckpointHarness]{
		{Name: "ClaimCreates", Run: func(t testing.TB, h CheckpointHarness) {
			l := h.lease(t, "0", "a", 7)
			p := h.claim(t, l)
			want := driver.Checkpoint{Group: testGroup, Partition: "0", Incarnation: incarnation, Position: driver.Unset, Owner: "a", Epoch: l.Epoch, Claims: 1}
			if !sameCheckpoint(p, want) || p.Updated.IsZero() {
				t.Errorf("claimed %+v, want %+v", p, want)
			}
			if got := h.checkpoint(t, "0"); !sameCheckpoint(got, want) || got.Updated.IsZero() {
				t.Errorf("read %+v, want %+v", got, want)
			}
		}},
		{Name: "ClaimRaises", Run: func(t testing.TB, h CheckpointHarness) {
			h.begin(t)
			for i, owner := range []string{"b", "b", "a"} {
				l := h.lease(t, "0", owner, int64(5+i))
				if p := h.claim(t, l); p.Owner != owner || p.Epoch != l.Epoch || p.Position != positionAt(9) {
					t.Errorf("claimed %+v, want owner %s, epoch %d, position %+v", p, owner, l.Epoch, positionAt(9))
				}
			}
		}},
		{Name: "ClaimFenced", Run: func(t testing.TB, h CheckpointHarness) {
			b := h.lease(t, "0", "b", 5)
			h.claim(t, b)
			h.advance(t, b, positionAt(9))
			before := h.checkpoint(t, "0")
			for _, l := range []driver.Lease{leaseOf("0", "a", b.Epoch-1), leaseOf("0", "b", b.Epoch-1), leaseOf("0", "a", b.Epoch)} {
				_, err := h.Store.Claim(suite.Context(t), l, incarnation)
				f, found := errors.AsType[*driver.FencedError](err)
				if !found || f.Partition != "0" || f.Epoch != b.Epoch || f.Owner != "b" {
					t.Errorf("claim for %s in epoch %d: got %v, want a FencedError that names epoch %d of b", l.Owner, l.Epoch, err, b.Epoch)
				}
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("claims in vain changed %+v to %+v", before, after)
			}
			h.advance(t, b, positionAt(10))
		}},
		{Name: "Claims", Run: func(t testing.TB, h CheckpointHarness) {
			claims := func(what string, want int) {
				t.Helper()
				if got := h.checkpoint(t, "0").Claims; got != want {
					t.Errorf("%s: %d claims, want %d", what, got, want)
				}
			}
			a := h.lease(t, "0", "a", 1)
			for range 3 {
				if p := h.claim(t, a); p.Claims != 1 {
					t.Errorf("claimed repeatedly in one epoch: %d claims, want 1", p.Claims)
				}
			}
			h.claim(t, h.lease(t, "0", "a", 2))
			b := h.lease(t, "0", "b", 3)
			if p := h.claim(t, b); p.Claims != 3 {
				t.Errorf("claimed in three epochs: %d claims", p.Claims)
			}
			h.advance(t, b, driver.Origin)
			claims("a start chosen", 1)
			c := h.lease(t, "0", "c", 4)
			h.claim(t, c)
			h.advance(t, c, driver.Origin, driver.SequenceRange{First: 3, Last: 4})
			claims("more done, but the position where it was", 2)
			h.advance(t, c, positionAt(0), driver.SequenceRange{First: 3, Last: 4})
			claims("progress", 1)
			d := h.lease(t, "0", "d", 9)
			if p := h.claim(t, d); p.Claims != 2 {
				t.Errorf("claimed after progress: %d claims, want 2", p.Claims)
			}
			for _, l := range []driver.Lease{b, c, leaseOf("0", "c", d.Epoch), leaseOf("0", "d", d.Epoch-1), leaseOf("1", "d", d.Epoch)} {
				suite.NoError(t, "leave by one who was fenced off", h.Store.Leave(suite.Context(t), l))
			}
			claims("left by one who was fenced off", 2)
			suite.NoError(t, "leave", h.Store.Leave(suite.Context(t), d))
			claims("left cleanly", 0)
			h.wantPosition(t, positionAt(0), driver.SequenceRange{First: 3, Last: 4})
			if p := h.claim(t, h.lease(t, "0", "e", 10)); p.Claims != 1 || p.Position != positionAt(0) {
				t.Errorf("claimed after a clean leave: %d claims at %+v, want 1 at %+v", p.Claims, p.Position, positionAt(0))
			}
		}},
		{Name: "Incarnation", Run: func(t testing.TB, h CheckpointHarness) {
			h.begin(t)
			b := h.lease(t, "0", "b", 2)
			p, err := h.Store.Claim(suite.Context(t), b, "incarnation 2")
			suite.NoError(t, "claim with another incarnation", err)
			if p.Incarnation != incarnation || p.Position != positionAt(9) || p.Epoch != b.Epoch || p.Owner != "b" {
				t.Errorf("got %+v, want the checkpoint claimed, and its incarnation and position as they were", p)
			}
			h.advance(t, b, positionAt(10))
			if p := h.checkpoint(t, "0"); p.Incarnation != incarnation {
				t.Errorf("progress made it of %s, want incarnation 1", p.Incarnation)
			}
		}},
		{Name: "Read", Run: func(t testing.TB, h CheckpointHarness) {
			for i, p := range []string{"10", "2", "0"} {
				h.claim(t, h.lease(t, p, "a", int64(i+1)))
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
		{Name: "GroupsApart", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			for i, g := range otherGroups {
				list, err := h.Store.Read(suite.Context(t), g)
				suite.NoError(t, "read", err)
				if len(list) != 0 {
					t.Errorf("group %v: read %v before anything was claimed", g, list)
				}
				l := h.leaseIn(t, g, "0", `o'wner "√" \%`, 1)
				p, err := h.Store.Claim(suite.Context(t), l, "incarnation \"√\" 1")
				suite.NoError(t, fmt.Sprintf("claim in group %v", g), err)
				if p.Position != driver.Unset || p.Group != g || p.Owner != l.Owner || p.Incarnation != "incarnation \"√\" 1" {
					t.Errorf("group %v: claimed %+v, want a checkpoint of its own", g, p)
				}
				h.advanceOf(t, l, p.Incarnation, positionAt(int64(70+i)))
			}
			for i, g := range otherGroups {
				list, err := h.Store.Read(suite.Context(t), g)
				suite.NoError(t, "read", err)
				if len(list) != 1 || list[0].Group != g || list[0].Position != positionAt(int64(70+i)) {
					t.Errorf("group %v: read %+v, want its own checkpoint at %d", g, list, 70+i)
				}
			}
			h.wantPosition(t, positionAt(9))
			h.advance(t, a, positionAt(10))
		}},
		{Name: "Begin", Run: func(t testing.TB, h CheckpointHarness) {
			lease := func(owner string, epoch int64) driver.Lease { return h.lease(t, "0", owner, epoch) }
			checkBegin(t, h.Store, lease, func(l driver.Lease) { h.advance(t, l, positionAt(12)) })
		}},
		{Name: "Reset", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			h.advance(t, a, positionAt(10), driver.SequenceRange{First: 12, Last: 14})
			epoch, err := h.Store.Reset(suite.Context(t), testGroup, "0", "incarnation 2", positionAt(4), "set")
			suite.NoError(t, "reset", err)
			p := h.checkpoint(t, "0")
			if epoch <= a.Epoch || p.Epoch != epoch || p.Position != positionAt(4) || p.Incarnation != "incarnation 2" || p.Claims != 0 || len(p.Done) > 0 {
				t.Errorf("reset to epoch %d: %+v, want an epoch above %d, position %+v of incarnation 2, no claims, nothing done after it", epoch, p, a.Epoch, positionAt(4))
			}
			for _, to := range []int64{4, 10, 11} {
				suite.ErrorIs(t, "advance by the owner of before", h.Store.Advance(suite.Context(t), a, incarnation, positionAt(to), nil), driver.ErrFenced)
			}
			_, err = h.Store.Claim(suite.Context(t), a, "incarnation 2")
			suite.ErrorIs(t, "claim in the epoch of before", err, driver.ErrFenced)
			_, err = h.Store.Claim(suite.Context(t), leaseOf("0", "b", epoch), "incarnation 2")
			if f, found := errors.AsType[*driver.FencedError](err); !found || f.Epoch != epoch {
				t.Errorf("claim in the reset's own epoch: got %v, want a FencedError that names epoch %d", err, epoch)
			}
			again, err := h.Store.Reset(suite.Context(t), testGroup, "0", "incarnation 2", driver.Origin, "set")
			suite.NoError(t, "reset again", err)
			if again <= epoch {
				t.Errorf("reset again to epoch %d, after %d", again, epoch)
			}
			b := h.lease(t, "0", "b", again+1)
			if p := h.claim(t, b); p.Claims != 1 || p.Position != driver.Origin || len(p.Done) > 0 {
				t.Errorf("claimed after a reset: %+v, want 1 claim at the origin", p)
			}
			h.advanceOf(t, b, "incarnation 2", positionAt(3))
		}},
		{Name: "ResetCreates", Run: func(t testing.TB, h CheckpointHarness) {
			epoch, err := h.Store.Reset(suite.Context(t), testGroup, "0", incarnation, positionAt(4), "set")
			suite.NoError(t, "reset", err)
			p := h.checkpoint(t, "0")
			if epoch < 1 || p.Epoch != epoch || p.Position != positionAt(4) || p.Incarnation != incarnation || p.Claims != 0 {
				t.Errorf("reset made %+v with epoch %d", p, epoch)
			}
			a := h.lease(t, "0", "a", epoch+1)
			h.claim(t, a)
			h.advance(t, a, positionAt(5))
		}},
		{Name: "LargeNumbers", Run: func(t testing.TB, h CheckpointHarness) {
			l := h.lease(t, "0", "a", 1<<40)
			h.claim(t, l)
			far := driver.Position{Sequence: 1<<62 + 1, Offset: strings.Repeat("9", 60)}
			done := []driver.SequenceRange{{First: far.Sequence + 2, Last: far.Sequence + 2}, {First: far.Sequence + 4, Last: math.MaxInt64}}
			h.advance(t, l, far, done...)
			h.wantPosition(t, far, done...)
		}},
	}
}

// advanceChecks are about Advance under a lease that is right.
func advanceChecks() []suite.Check[CheckpointHarness] {
	return []suite.Check[CheckpointHarness]{
		{Name: "Advance", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.lease(t, "0", "a", 1)
			h.claim(t, a)
			for _, to := range []driver.Position{driver.Origin, positionAt(0), positionAt(1), positionAt(12), {Sequence: 1300}} { // the last without an offset
				h.advance(t, a, to)
				h.wantPosition(t, to)
				if p := h.claim(t, a); p.Position != to || p.Epoch != a.Epoch || p.Owner != "a" {
					t.Errorf("claimed %+v, want it at %+v", p, to)
				}
			}
			h.claim(t, h.lease(t, "1", "a", 1))
			if p := h.checkpoint(t, "1"); p.Position != driver.Unset {
				t.Errorf("another partition is at %+v", p.Position)
			}
		}},
		{Name: "AdvanceAgain", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			for range 3 {
				h.advance(t, a, positionAt(10), driver.SequenceRange{First: 12, Last: 14})
				h.wantPosition(t, positionAt(10), driver.SequenceRange{First: 12, Last: 14})
			}
			h.advance(t, a, positionAt(11), driver.SequenceRange{First: 13, Last: 14})
			h.wantPosition(t, positionAt(11), driver.SequenceRange{First: 13, Last: 14})
		}},
		{Name: "Attempt", Run: func(t testing.TB, h CheckpointHarness) {
			checkAttempts(t, attempts{
				record: h.Store.RecordAttempt, a: h.begin(t),
				next: func() (driver.Lease, driver.Checkpoint) {
					b := h.lease(t, "0", "b", 2)
					return b, h.claim(t, b)
				},
				move: func(l driver.Lease, _, to driver.Position) { h.advance(t, l, to) },
				read: func() driver.Checkpoint { return h.checkpoint(t, "0") },
			})
		}},
		{Name: "AttemptKeepsDone", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			h.advance(t, a, positionAt(10), driver.SequenceRange{First: 12, Last: 14})
			suite.NoError(t, "record", h.Store.RecordAttempt(suite.Context(t), a, positionAt(10), driver.AttemptRecord{Sequence: 11, Attempts: 1, Error: "no"}))
			h.wantPosition(t, positionAt(10), driver.SequenceRange{First: 12, Last: 14})
			_, err := h.Store.Reset(suite.Context(t), testGroup, "0", incarnation, positionAt(10), "set")
			suite.NoError(t, "reset", err)
			if p := h.checkpoint(t, "0"); p.Attempt != (driver.AttemptRecord{}) {
				t.Errorf("a reset left attempt record %+v", p.Attempt)
			}
		}},
		{Name: "Backwards", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			done := []driver.SequenceRange{{First: 14, Last: 15}, {First: 17, Last: 17}}
			h.advance(t, a, positionAt(12), done...)
			before := h.checkpoint(t, "0")
			for _, to := range []driver.Position{positionAt(11), {Sequence: 11}, positionAt(0), driver.Origin, driver.Unset} {
				suite.ErrorIs(t, fmt.Sprintf("advance from 12 to %v", to), h.Store.Advance(suite.Context(t), a, incarnation, to, []driver.SequenceRange{{First: 13, Last: 13}}), driver.ErrFenced)
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("advances in vain changed %+v to %+v", before, after)
			}
			h.advance(t, a, positionAt(13), done[1:]...)
		}},
		{Name: "Done", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			first := []driver.SequenceRange{{First: 11, Last: 11}, {First: 13, Last: 20}, {First: 22, Last: 1 << 41}}
			h.advance(t, a, positionAt(9), first...)
			h.wantPosition(t, positionAt(9), first...)
			h.wantCheckpoint(t, "claimed again", h.claim(t, a), positionAt(9), first...)
			suite.NoError(t, "leave", h.Store.Leave(suite.Context(t), a))
			b := h.lease(t, "0", "b", 2)
			h.wantCheckpoint(t, "claimed by another", h.claim(t, b), positionAt(9), first...)
			h.wantPosition(t, positionAt(9), first...)
			fewer := []driver.SequenceRange{{First: 15, Last: 15}}
			h.advance(t, b, positionAt(9), fewer...)
			h.wantPosition(t, positionAt(9), fewer...)
			h.advance(t, b, positionAt(9))
			h.wantPosition(t, positionAt(9))
			h.advance(t, b, positionAt(9), fewer...)
			h.advance(t, b, positionAt(12)) // replaced, not added to
			h.wantPosition(t, positionAt(12))
			other := h.lease(t, "1", "a", 1)
			h.claim(t, other)
			h.advance(t, other, positionAt(1), driver.SequenceRange{First: 3, Last: 3})
			h.wantPosition(t, positionAt(12))
			h.wantCheckpoint(t, "another partition", h.checkpoint(t, "1"), positionAt(1), driver.SequenceRange{First: 3, Last: 3})
		}},
		{Name: "ManyDone", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			var done []driver.SequenceRange
			next := int64(9)
			for i := range int64(max(100, 4*h.Features.Ranges)) {
				next += 1e12 + i*7919
				done = append(done, driver.SequenceRange{First: next, Last: next + 1e11 + i})
				next += 1e11 + i
			}
			h.advance(t, a, positionAt(9), done...)
			h.wantPosition(t, positionAt(9), done...)
			h.wantCheckpoint(t, "claimed", h.claim(t, a), positionAt(9), done...)
			h.advance(t, a, positionAt(10), done[1:]...)
			h.wantPosition(t, positionAt(10), done[1:]...)
		}},
		{Name: "AnyOffset", Run: func(t testing.TB, h CheckpointHarness) {
			// What a store can't hold is changed, and never an error.
			a := h.begin(t)
			for i, hostile := range []string{"\x00", "\xff\xfe", "\xed\xa0\x80", "\ufffe", "\x1b[0m\r\n", "Grüße ✈", " "} {
				to := int64(10 + i)
				h.advance(t, a, driver.Position{Sequence: to, Offset: "before" + hostile + "after"})
				if p := h.checkpoint(t, "0").Position; p.Sequence != to || !strings.HasPrefix(p.Offset, "before") || !strings.HasSuffix(p.Offset, "after") {
					t.Errorf("offset with %q: got %+v, want what can be kept of it", hostile, p)
				}
			}
		}},
		{Name: "Cancelled", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			before := h.checkpoint(t, "0")
			ctx, cancel := context.WithCancel(suite.Context(t))
			cancel()
			_, claim := h.Store.Claim(ctx, leaseOf("0", "b", 99), incarnation)
			_, read := h.Store.Read(ctx, testGroup)
			_, reset := h.Store.Reset(ctx, testGroup, "0", incarnation, positionAt(4), "set")
			for what, err := range map[string]error{
				"claim": claim, "read": read, "reset": reset,
				"advance": h.Store.Advance(ctx, a, incarnation, positionAt(10), nil),
				"leave":   h.Store.Leave(ctx, a),
			} {
				if err == nil || errors.Is(err, driver.ErrFenced) {
					t.Errorf("%s with a context that has ended: got %v, want an error that is not ErrFenced", what, err)
				}
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("calls with a context that had ended changed %+v to %+v", before, after)
			}
		}},
	}
}

// raceChecks are about who may move a checkpoint.
func raceChecks() []suite.Check[CheckpointHarness] {
	return []suite.Check[CheckpointHarness]{
		{Name: "Fence", Run: func(t testing.TB, h CheckpointHarness) {
			a := h.begin(t)
			b := h.lease(t, "0", "b", 5)
			h.claim(t, b)
			done := []driver.SequenceRange{{First: 12, Last: 12}}
			h.advance(t, b, positionAt(10), done...)
			before := h.checkpoint(t, "0")
			other := b
			other.Group = otherGroups[0]
			for what, l := range map[string]driver.Lease{
				"an earlier epoch and owner": a,
				"an earlier epoch":           leaseOf("0", "b", b.Epoch-1),
				"an epoch never claimed":     leaseOf("0", "b", b.Epoch+1),
				"another owner":              leaseOf("0", "a", b.Epoch),
				"a partition never claimed":  leaseOf("1", "b", b.Epoch),
				"a group never claimed":      other,
			} {
				for _, to := range []int64{9, 10, 11} {
					suite.ErrorIs(t, fmt.Sprintf("advance to %d under %s", to, what), h.Store.Advance(suite.Context(t), l, incarnation, positionAt(to), nil), driver.ErrFenced)
				}
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("advances in vain changed %+v to %+v", before, after)
			}
			list, err := h.Store.Read(suite.Context(t), testGroup)
			suite.NoError(t, "read", err)
			if len(list) != 1 {
				t.Errorf("advances in vain made %d checkpoints of 1", len(list))
			}
			h.advance(t, b, positionAt(11))
		}},
		{Name: "Incarnation", Run: func(t testing.TB, h CheckpointHarness) {
			// The topic was recreated. The owner claims the checkpoint of before, and an advance
			// that it had sent for the new topic arrives later.
			a := h.begin(t)
			before := h.checkpoint(t, "0")
			for _, to := range []int64{9, 50} {
				suite.ErrorIs(t, fmt.Sprintf("advance to %d of another incarnation", to), h.Store.Advance(suite.Context(t), a, "incarnation 2", positionAt(to), nil), driver.ErrFenced)
			}
			if after := h.checkpoint(t, "0"); !sameCheckpoint(before, after) {
				t.Errorf("advances of another incarnation changed %+v to %+v", before, after)
			}
			h.advance(t, a, positionAt(10))
		}},
		{Name: "Zombie", Run: func(t testing.TB, h CheckpointHarness) {
			// An owner that was paused wakes up in another process.
			a := h.begin(t)
			b := h.rivalLease(t, 2)
			_, err := h.peer().Claim(suite.Context(t), b, incarnation)
			suite.NoError(t, "claim", err)
			suite.ErrorIs(t, "advance by the owner of before", h.Store.Advance(suite.Context(t), a, incarnation, positionAt(50), nil), driver.ErrFenced)
			suite.NoError(t, "leave by the owner of before", h.Store.Leave(suite.Context(t), a))
			_, err = h.Store.Claim(suite.Context(t), a, incarnation)
			suite.ErrorIs(t, "claim by the owner of before", err, driver.ErrFenced)
			if p := h.checkpoint(t, "0"); p.Position != positionAt(9) || p.Owner != "b" || p.Claims != 2 {
				t.Errorf("the owner of before has made %+v of it, want it b's at %+v with 2 claims", p, positionAt(9))
			}
			suite.NoError(t, "advance", h.peer().Advance(suite.Context(t), b, incarnation, positionAt(10), nil))
			h.wantPosition(t, positionAt(10))
		}},
		{Name: "AdvanceAtOnce", Run: func(t testing.TB, h CheckpointHarness) {
			// One owner's requests overtake each other.
			a := h.begin(t)
			const n = 8
			for round := range int64(5) {
				base := 10 + round*n
				for err := range race(t, n, func(i int) error {
					to := base + int64(i)
					return h.Store.Advance(suite.Context(t), a, incarnation, positionAt(to), []driver.SequenceRange{{First: to + 2, Last: to + 3}})
				}) {
					if err != nil && !errors.Is(err, driver.ErrFenced) {
						t.Errorf("one of %d advances at once: got %v, want nil or ErrFenced", n, err)
					}
				}
				last := base + n - 1
				h.wantPosition(t, positionAt(last), driver.SequenceRange{First: last + 2, Last: last + 3})
			}
		}},
		{Name: "ClaimMeetsAdvance", Run: func(t testing.TB, h CheckpointHarness) {
			// The owner of the old epoch advances step by step while another
			// claims. What the claim returned is the last word.
			h.begin(t)
			done := func(n int64) []driver.SequenceRange { return []driver.SequenceRange{{First: n + 2, Last: n + 2 + n%3}} }
			for round := range int64(6) {
				a := h.lease(t, "0", "a", 2*round+2)
				start := h.claim(t, a).Position.Sequence
				type run struct {
					acked int64 // the last step that was answered with nil
					err   error
				}
				begun := make(chan struct{})
				old := suite.Spawn(t, func() run {
					r := run{acked: start}
					for n := start + 1; n <= start+50; n++ {
						if r.err = h.Store.Advance(suite.Context(t), a, incarnation, positionAt(n), done(n)); r.err != nil {
							break
						}
						r.acked = n
						if n == start+1 {
							close(begun)
						}
					}
					if r.acked == start {
						close(begun)
					}
					return r
				})
				<-begun
				b := h.rivalLease(t, 2*round+3)
				p, err := h.peer().Claim(suite.Context(t), b, incarnation)
				suite.NoError(t, "claim while the old owner advances", err)
				r := <-old
				if r.err != nil && !errors.Is(r.err, driver.ErrFenced) {
					t.Errorf("the old owner's last advance: got %v, want ErrFenced", r.err)
				}
				if p.Position.Sequence < r.acked || p.Position.Sequence > r.acked+1 {
					t.Errorf("the old owner's last acknowledged step is %d, the claim saw %d", r.acked, p.Position.Sequence)
				}
				h.wantCheckpoint(t, "claimed", p, positionAt(p.Position.Sequence), done(p.Position.Sequence)...)
				h.wantPosition(t, p.Position, p.Done...)
				suite.NoError(t, "advance after the claim", h.peer().Advance(suite.Context(t), b, incarnation, positionAt(p.Position.Sequence+1), nil))
			}
		}},
	}
}
