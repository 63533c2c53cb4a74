package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// redriveChecks are about what a step does to dead letters, and Due.
func redriveChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "DeadLetterUpdated", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			first := h.park(t, a, deadLetterOf("0", 5))[5]
			again := deadLetterOf("0", 5)
			again.Error, again.Attempts, again.FailedAt = "failed again", 4, again.FailedAt.Add(time.Hour)
			second := h.park(t, a, again, deadLetterOf("0", 6))[5]
			if second.ID != first.ID {
				t.Errorf("stored again under id %d, had %d", second.ID, first.ID)
			}
			if second.Error != again.Error || second.Attempts != 4 || second.Status != driver.StatusDead || !second.FailedAt.Equal(again.FailedAt) {
				t.Errorf("stored again: got %+v, want error, attempts and time of %+v", second, again)
			}
			h.redrive(t, first.ID)
			if third := h.park(t, a, again)[5]; third.Status != driver.StatusDead || !third.NextAttempt.IsZero() {
				t.Errorf("stored again while on retry: status %s at %v, want dead", third.Status, third.NextAttempt)
			}
		}},
		{Name: "DeadLetterIdentity", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			recreated := deadLetterOf("0", 5)
			recreated.Incarnation = "incarnation 2"
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetterOf("0", 5), recreated, deadLetterOf("0", 6)}}, nil)
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetterOf("1", 5)}}, nil)
			list, err := h.DeadLetters.List(suite.Context(t), testGroup, driver.DeadLetterFilter{})
			suite.NoError(t, "list", err)
			if len(list) != 4 {
				t.Errorf("%d dead letters, want one for each of two incarnations, two partitions and two numbers: %v", len(list), list)
			}
		}},
		{Name: "SettleIncarnation", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			recreated := deadLetterOf("0", 11)
			recreated.Incarnation = "incarnation 2"
			recreated.Event.Sequence = 14
			found := h.park(t, a, deadLetterOf("0", 9), deadLetterOf("0", 10), deadLetterOf("0", 11), deadLetterOf("0", 12), deadLetterOf("0", 13), recreated)
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			other := deadLetterOf("1", 15)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{other}}, nil)
			h.redrive(t, found[10].ID)
			_, err := h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[11].ID}})
			suite.NoError(t, "discard", err)

			again := deadLetterOf("0", 12)
			again.Error = "failed again"
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(15), DeadLetters: []driver.DeadLetter{again}, SettleIncarnation: "incarnation 1"}
			no := errors.New("no")
			wantHandlerError(t, "a step that fails", h.Store.Commit(suite.Context(t), step, func(context.Context, Tx) error { return no }), no)
			if left := h.deadLetters(t); len(left) != 7 {
				t.Errorf("a step that failed left %d dead letters of 7", len(left))
			}
			step.To = positionAt(12)
			h.commit(t, step, h.put("10", "11"))
			left := h.deadLetters(t)
			if len(left) != 5 || left[10].ID != 0 || left[11].ID != 0 {
				t.Errorf("left are %v, want all but those of events 10 and 11, which the step has handled", left)
			}
			if left[12].ID != found[12].ID || left[12].Error != again.Error {
				t.Errorf("event 12, which failed again: %+v, want it updated", left[12])
			}
			h.commit(t, driver.Step{Lease: a, From: positionAt(12), To: positionAt(13)}, h.put("13"))
			if left := h.deadLetters(t); len(left) != 5 {
				t.Errorf("a step that settles nothing left %d dead letters of 5", len(left))
			}
		}},
		{Name: "SetAside", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 11), deadLetterOf("0", 12))
			parked, err := h.Store.Parked(suite.Context(t), testGroup, "0", "incarnation 1", 11)
			suite.NoError(t, "parked", err)
			twelve := found[12]
			if len(parked) != 1 || parked[0].ID != twelve.ID || parked[0].Position != twelve.Event.Position() {
				t.Fatalf("parked after 11 are %+v, want event 12 as %+v", parked, twelve)
			}
			aside := driver.LostIncarnation("incarnation 1", "leader-epoch 7")
			suite.NoError(t, "set aside", h.Store.SetAside(suite.Context(t), testGroup, "0", aside, parked))
			if p := h.claim(t, a); p.DeadLettersBelow != 12 {
				t.Errorf("all dead letters are below %d, want 12", p.DeadLettersBelow)
			}
			// The step's own dead letter of the number is another one, and what is set aside is not
			// settled.
			other := deadLetterOf("0", 12)
			other.Error = "another event"
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(12), DeadLetters: []driver.DeadLetter{other}, SettleIncarnation: "incarnation 1"}, h.put("10", "11"))
			kept, err := h.DeadLetters.Get(suite.Context(t), testGroup, found[12].ID)
			suite.NoError(t, "get what is set aside", err)
			if left, err := h.DeadLetters.List(suite.Context(t), testGroup, driver.DeadLetterFilter{}); err != nil || len(left) != 2 || kept.Incarnation != aside || kept.Error == other.Error {
				t.Errorf("left are %+v (%v), and what is set aside is %+v; want it as it was, and one of the other event", left, err, kept)
			}
		}},
		{Name: "Redriven", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("0", 7))
			five, seven := found[5].ID, found[7].ID
			h.redrive(t, five, seven)
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), Redriven: []int64{five}}
			no := errors.New("no")
			wantHandlerError(t, "a retry that fails", h.Store.Commit(suite.Context(t), step, func(context.Context, Tx) error { return no }), no)
			h.commit(t, step, h.put("5"))
			wantFenced(t, "the same retry again", h.Store.Commit(suite.Context(t), step, h.put("5 again")))
			step.Redriven = []int64{seven, five}
			wantFenced(t, "two retries of which one is done", h.Store.Commit(suite.Context(t), step, h.put("7", "5 again")))
			if _, err := h.DeadLetters.Get(suite.Context(t), testGroup, five); !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("get of a dead letter that was redriven: %v", err)
			}
			step.Redriven, step.To = []int64{seven}, positionAt(10)
			h.commit(t, step, h.put("7", "10"))
			h.wantEffects(t, "5", "7", "10")
			h.wantPosition(t, "0", positionAt(10))
			if left := h.deadLetters(t); len(left) != 1 || left[6].Status != driver.StatusDead {
				t.Errorf("left are %v, want event 6 as it was", left)
			}
		}},
		{Name: "Postponed", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 5))
			h.redrive(t, found[5].ID)
			later := found[5]
			later.Status, later.NextAttempt = driver.StatusRetry, time.Date(2150, 1, 2, 3, 4, 5, 0, time.UTC)
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), FailedRedrives: []driver.DeadLetter{later}}, nil)
			if d := h.deadLetters(t)[5]; d.Status != driver.StatusRetry || !d.NextAttempt.Equal(later.NextAttempt) {
				t.Errorf("postponed: status %s at %v, want %s at %v", d.Status, d.NextAttempt, later.Status, later.NextAttempt)
			}
			due, err := h.Store.Due(suite.Context(t), testGroup, "0", 10)
			suite.NoError(t, "due", err)
			if len(due) != 0 {
				t.Errorf("postponed: due are %v, want none", due)
			}

			later.NextAttempt = time.Time{}
			before := time.Now()
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), FailedRedrives: []driver.DeadLetter{later}, PostponeFor: time.Hour}, nil)
			if next := h.deadLetters(t)[5].NextAttempt; next.Before(before.Add(time.Hour-suite.Patience)) || next.After(time.Now().Add(time.Hour+suite.Patience)) {
				t.Errorf("postponed by an hour: due at %v, now is %v", next, time.Now())
			}
		}},
		{Name: "Returned", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			five, six := deadLetterOf("0", 5), deadLetterOf("0", 6)
			five.Event.Properties = map[string]any{"n": int32(5)}
			found := h.park(t, a, five, six)
			h.redrive(t, found[5].ID, found[6].ID)
			again := found[5] // as listed: without body and properties
			again.Status, again.NextAttempt = driver.StatusDead, time.Time{}
			again.Error, again.Attempts, again.FailedAt = "failed again", 4, five.FailedAt.Add(time.Hour)
			step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), FailedRedrives: []driver.DeadLetter{again}}
			h.commit(t, step, nil)
			got, err := h.DeadLetters.Get(suite.Context(t), testGroup, again.ID)
			suite.NoError(t, "get", err)
			again.Event = five.Event
			sameDeadLetter(t, "a retry that failed", got, again)
			wantFenced(t, "the same step again, not on retry any more", h.Store.Commit(suite.Context(t), step, nil))

			later := found[6]
			later.Status, later.NextAttempt = driver.StatusRetry, time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(10), FailedRedrives: []driver.DeadLetter{later}}, nil)
			if got := h.deadLetters(t)[6]; got.Status != driver.StatusRetry || !got.NextAttempt.Equal(later.NextAttempt) {
				t.Errorf("returned for another retry at %v: got %s at %v", later.NextAttempt, got.Status, got.NextAttempt)
			}
			h.wantPosition(t, "0", positionAt(10))
		}},
		{Name: "NotOnRetry", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.park(t, a, deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("0", 8), deadLetterOf("0", 9))
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetterOf("1", 7)}}, nil)
			found := h.deadLetters(t)
			stranger := driver.Lease{Group: otherGroups[0], Partition: "0", Owner: "a", Epoch: 1}
			_, err := h.Store.Claim(suite.Context(t), stranger, "incarnation 1")
			suite.NoError(t, "claim", err)
			h.redrive(t, found[6].ID, found[7].ID, found[8].ID, found[9].ID)
			_, err = h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[6].ID}})
			suite.NoError(t, "discard", err)
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), Redriven: []int64{found[9].ID}}, nil)
			before := h.deadLetters(t)
			for _, c := range []struct {
				what     string
				lease    driver.Lease
				position driver.Position
				id       int64
			}{
				{"dead", a, positionAt(9), found[5].ID},
				{"discarded", a, positionAt(9), found[6].ID},
				{"gone", a, positionAt(9), found[9].ID},
				{"not there", a, positionAt(9), 1 << 40},
				{"another partition's", a, positionAt(9), found[7].ID},
				{"another group's", stranger, driver.Unset, found[8].ID},
				{"on retry, from behind", b, positionAt(8), found[7].ID},
				{"on retry, under a later epoch", leaseOf("1", "a", 2), positionAt(9), found[7].ID},
				{"on retry, while nothing claims", leaseOf("2", "a", 1), positionAt(9), found[7].ID},
			} {
				again := deadLetterOf(c.lease.Partition, 7)
				again.ID, again.Group, again.Error = c.id, c.lease.Group, "failed again"
				step := driver.Step{Lease: c.lease, From: c.position, To: c.position}
				step.Redriven = []int64{c.id}
				wantFenced(t, "redriven is a dead letter that is "+c.what, h.Store.Commit(suite.Context(t), step, h.put(c.what)))
				step.Redriven, step.FailedRedrives = nil, []driver.DeadLetter{again}
				wantFenced(t, "returned is a dead letter that is "+c.what, h.Store.Commit(suite.Context(t), step, h.put(c.what)))
				if c.lease == a { // nor does one that is on retry help
					step.Redriven = []int64{found[8].ID}
					wantFenced(t, "one of two is a dead letter that is "+c.what, h.Store.Commit(suite.Context(t), step, h.put(c.what)))
				}
			}
			h.wantEffects(t)
			if after := h.deadLetters(t); !reflect.DeepEqual(before, after) {
				t.Errorf("steps in vain changed the dead letters from %+v to %+v", before, after)
			}
			h.commit(t, driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), Redriven: []int64{found[8].ID}}, h.put("8"))
			h.wantEffects(t, "8")
		}},
		{Name: "RedrivenAtOnce", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			for round := range int64(5) {
				id := h.park(t, a, deadLetterOf("0", round))[round].ID
				h.redrive(t, id)
				wins := 0
				for err := range race(t, 4, func(i int) error {
					s := h.Store
					if i%2 == 1 {
						s = h.peer()
					}
					return s.Commit(suite.Context(t), driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), Redriven: []int64{id}}, h.put(fmt.Sprint(round)))
				}) {
					switch {
					case err == nil:
						wins++
					case isHandlerError(err) || errors.Is(err, driver.ErrUnknown):
						t.Errorf("one of four retries at once: got %T %v, want nil, ErrFenced or that the database couldn't", err, err)
					}
				}
				if wins != 1 {
					t.Errorf("%d of 4 retries at once committed, want 1", wins)
				}
			}
			h.wantEffects(t, "0", "1", "2", "3", "4")
		}},
		{Name: "Due", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 8), deadLetterOf("0", 3), deadLetterOf("0", 5), deadLetterOf("0", 4), deadLetterOf("0", 2), deadLetterOf("0", 1))
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetterOf("1", 7)}}, nil)
			due := func(limit int) []int64 {
				t.Helper()
				return listDue(t, h.Store, limit)
			}
			if got := due(10); got != nil {
				t.Errorf("due without any retry: events %v", got)
			}
			mark := func(sequence int64, at time.Time) {
				t.Helper()
				n, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[sequence].ID}}, at)
				suite.NoError(t, "redrive", err)
				if n != 1 {
					t.Errorf("retry of one dead letter marked %d", n)
				}
			}
			mark(8, time.Time{})
			mark(3, time.Now().Add(-time.Hour))
			mark(5, time.Now().Add(-24*time.Hour))
			mark(2, time.Now().Add(time.Hour))
			_, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{Partition: "1"}, time.Time{})
			suite.NoError(t, "redrive", err)
			if got := due(10); !slices.Equal(got, []int64{3, 5, 8}) {
				t.Errorf("due are events %v, want 3, 5, 8", got)
			}
			if got := due(2); !slices.Equal(got, []int64{3, 5}) {
				t.Errorf("due, at most two, are events %v, want 3, 5", got)
			}
			soon := time.Now().Add(4 * suite.Moment)
			mark(4, soon)
			if got := due(10); slices.Contains(got, 4) && time.Now().Before(soon.Add(-10*time.Millisecond)) {
				t.Errorf("a retry is due %v early", time.Until(soon))
			}
			suite.Eventually(t, "the retry of event 4 is due", func() bool { return slices.Equal(due(10), []int64{3, 4, 5, 8}) })
			_, err = h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[3].ID}})
			suite.NoError(t, "discard", err)
			if got := due(10); !slices.Equal(got, []int64{4, 5, 8}) {
				t.Errorf("due after one was discarded are events %v, want 4, 5, 8", got)
			}
		}},
	}
}

// listDue returns the sequence numbers of what is due in partition 0, having
// seen that it is whole.
func listDue(t testing.TB, store interface {
	Due(ctx context.Context, group driver.Group, partition string, limit int) ([]driver.DeadLetter, error)
}, limit int) []int64 {
	t.Helper()
	list, err := store.Due(suite.Context(t), testGroup, "0", limit)
	suite.NoError(t, "due", err)
	var got []int64
	for _, l := range list {
		if l.Group != testGroup || l.Incarnation != "incarnation 1" || l.Status != driver.StatusRetry || !l.HasBody || string(l.Event.Body) != fmt.Sprint("body ", l.Event.Sequence) {
			t.Errorf("due: got %+v, want it whole", l)
		}
		got = append(got, l.Event.Sequence)
	}
	return got
}
