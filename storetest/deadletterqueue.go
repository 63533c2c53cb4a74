package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestDeadLetterQueue is the conformance suite of [driver.DeadLetterQueue], together
// with what the [driver.DeadLetterStore] beside it makes of what it stores.
// Every case asks new for an empty store.
func TestDeadLetterQueue(t *testing.T, new func(t testing.TB) DeadLetterQueueHarness) {
	suite.Run(t, deadLetterQueueChecks(), new)
}

func deadLetterQueueChecks() []suite.Check[DeadLetterQueueHarness] {
	var all []suite.Check[DeadLetterQueueHarness]
	all = append(all, parkChecks()...)
	all = append(all, settleChecks()...)
	all = append(all, queueReadChecks()...)
	all = append(all, copyChecks()...)
	return append(all, answerLost, silenceOfQueue)
}

// parkChecks are about Park.
func parkChecks() []suite.Check[DeadLetterQueueHarness] {
	return []suite.Check[DeadLetterQueueHarness]{
		{Name: "RoundTrip", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			want := fullDeadLetter(5)
			listed := h.park(t, want)[5]
			want.ID = listed.ID
			sameDeadLetter(t, "get", h.get(t, listed.ID), want)
			h.redrive(t, listed.ID)
			due, err := h.Store.Due(suite.Context(t), testGroup, "0", 10)
			suite.NoError(t, "due", err)
			if len(due) != 1 {
				t.Fatalf("%d dead letters are due, want 1", len(due))
			}
			retried := want
			retried.Status, retried.NextAttempt = driver.StatusRetry, due[0].NextAttempt
			sameDeadLetter(t, "due", due[0], retried)
			want.Event.Body, want.Event.Properties, want.Event.Headers, want.Event.Created = nil, nil, nil, time.Time{}
			sameDeadLetter(t, "list, without body, properties and headers", listed, want)
		}},
		{Name: "Bare", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			bare := deadLetterOf("0", 5)
			bare.HasBody, bare.Event.Body, bare.Event.Offset = false, nil, ""
			bare.Event.Enqueued = time.Time{}
			empty := deadLetterOf("0", 6)
			empty.Event.Body, empty.Error, empty.Attempts = []byte{}, "", 0
			null, odd := nullDeadLetter(7), oddDeadLetter(8)
			listed := h.park(t, bare, empty, null, odd)
			for sequence, want := range map[int64]driver.DeadLetter{5: bare, 6: empty, 7: null, 8: odd} {
				want.ID = listed[sequence].ID
				sameDeadLetter(t, "get", h.get(t, want.ID), want)
			}
		}},
		{Name: "AnyText", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// What a store can't hold is changed, and never an error: body and
			// identity stay exact.
			for i, hostile := range []string{"\x00", "\xff\xfe", "\xed\xa0\x80", "\xf0\x9f", "\ufffe", "\x1b[0m\r\n", "\u202e"} {
				text := "before" + hostile + "after"
				l := deadLetterOf("0", int64(i))
				l.Error, l.Event.Offset, l.Event.Key, l.Event.MessageID = text, text, text, text
				l.Event.CorrelationID, l.Event.ContentType = text, text
				l.Event.Body = []byte(text)
				l.Event.Properties = map[string]any{"n" + hostile: text}
				got := h.get(t, h.park(t, l)[int64(i)].ID)
				if !bytes.Equal(got.Event.Body, l.Event.Body) || !got.HasBody || got.Event.Sequence != int64(i) || len(got.Event.Properties) != 1 {
					t.Errorf("dead letter with text %q: got %+v, want body and identity as they were", text, got)
				}
				for what, kept := range map[string]string{"error": got.Error, "key": got.Event.Key, "message id": got.Event.MessageID} {
					if !strings.HasPrefix(kept, "before") || !strings.HasSuffix(kept, "after") {
						t.Errorf("%s %q became %q, want what can be kept of it", what, text, kept)
					}
				}
			}
		}},
		{Name: "LargeBodies", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			var deadLetters []driver.DeadLetter
			for i, size := range []int{256 << 10, 4 << 20, 0, 1 << 20, 1<<20 + 1} {
				l := deadLetterOf("0", int64(i))
				l.Event.Body = bytes.Repeat([]byte{byte(i), 0, 0xff}, size/3+1)[:size]
				deadLetters = append(deadLetters, l)
			}
			found := h.park(t, deadLetters...)
			for i, want := range deadLetters {
				want.ID = found[int64(i)].ID
				sameDeadLetter(t, fmt.Sprintf("body of %d bytes", len(want.Event.Body)), h.get(t, want.ID), want)
			}
		}},
		{Name: "Many", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			const n = 1000
			var deadLetters []driver.DeadLetter
			for i := range int64(n) {
				deadLetters = append(deadLetters, deadLetterOf("0", i))
			}
			suite.NoError(t, "park none", h.Store.Park(suite.Context(t), nil))
			found := h.park(t, deadLetters...)
			for i := range int64(n) {
				if l := found[i]; l.Error != deadLetters[i].Error || l.Event.Offset != deadLetters[i].Event.Offset {
					t.Fatalf("of %d dead letters, that of event %d is %+v, want %+v", n, i, l, deadLetters[i])
				}
			}
			if len(found) != n {
				t.Errorf("%d dead letters, want %d", len(found), n)
			}
		}},
		{Name: "Again", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			first := h.park(t, deadLetterOf("0", 5))[5]
			again := deadLetterOf("0", 5)
			again.Error, again.Attempts, again.FailedAt = "failed again", 4, again.FailedAt.Add(time.Hour)
			second := h.park(t, deadLetterOf("0", 4), again, deadLetterOf("0", 6))[5]
			if second.ID != first.ID {
				t.Errorf("parked again under id %d, had %d", second.ID, first.ID)
			}
			if second.Error != again.Error || second.Attempts != 4 || second.Status != driver.StatusDead || !second.FailedAt.Equal(again.FailedAt) {
				t.Errorf("parked again: got %+v, want error, attempts and time of %+v", second, again)
			}
			if got := h.get(t, first.ID); !bytes.Equal(got.Event.Body, again.Event.Body) {
				t.Errorf("parked again: body %q", got.Event.Body)
			}
			h.redrive(t, first.ID)
			third := h.park(t, again)
			if l := third[5]; l.Status != driver.StatusDead || !l.NextAttempt.IsZero() || l.ID != first.ID || len(third) != 3 {
				t.Errorf("parked again while on retry: %d dead letters, status %s at %v, want 3, dead", len(third), l.Status, l.NextAttempt)
			}
		}},
		{Name: "TwiceAtOnce", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// In one call, the last word counts.
			again := deadLetterOf("0", 5)
			again.Error, again.Attempts = "failed again", 4
			found := h.park(t, deadLetterOf("0", 5), deadLetterOf("0", 6), again)
			if l := found[5]; len(found) != 2 || l.Error != again.Error || l.Attempts != 4 {
				t.Errorf("parked twice in one call: %d dead letters, %+v, want 2, the last as %+v", len(found), l, again)
			}
		}},
		{Name: "Identity", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			deadLetters := []driver.DeadLetter{deadLetterOf("0", 5), deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("1", 5)}
			deadLetters[1].Incarnation = "incarnation 2"
			suite.NoError(t, "park", h.Store.Park(suite.Context(t), deadLetters))
			list, err := h.DeadLetters.List(suite.Context(t), testGroup, driver.DeadLetterFilter{})
			suite.NoError(t, "list", err)
			if len(list) != 4 {
				t.Errorf("%d dead letters, want one for each of two incarnations, two partitions and two numbers: %v", len(list), list)
			}
			for _, l := range list {
				if !slices.ContainsFunc(deadLetters, func(w driver.DeadLetter) bool {
					return w.Incarnation == l.Incarnation && w.Event.Partition == l.Event.Partition && w.Event.Sequence == l.Event.Sequence
				}) {
					t.Errorf("a dead letter that was never parked: %+v", l)
				}
			}
		}},
		{Name: "Whole", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// A concurrent reader, and one after the call was cut off, sees all of
			// the dead letters or none.
			const n = 200
			for round := range int64(8) {
				var deadLetters []driver.DeadLetter
				for i := range int64(n) {
					deadLetters = append(deadLetters, deadLetterOf(fmt.Sprint(round), i))
				}
				filter := driver.DeadLetterFilter{Partition: fmt.Sprint(round)}
				look := func(when string) int {
					list, err := h.DeadLetters.List(suite.Context(t), testGroup, filter)
					suite.NoError(t, "list", err)
					if len(list) != 0 && len(list) != n {
						t.Errorf("%s: %d of %d dead letters that go together", when, len(list), n)
					}
					return len(list)
				}
				ctx, cancel := context.WithTimeout(suite.Context(t), time.Duration(round*round)*300*time.Microsecond)
				over := suite.Spawn(t, func() error { return h.Store.Park(ctx, deadLetters) })
				var err error
				tick := time.NewTicker(200 * time.Microsecond)
				for running := true; running; {
					look("meanwhile")
					select {
					case err = <-over:
						running = false
					case <-tick.C:
					}
				}
				tick.Stop()
				cancel()
				if found := look("afterwards"); err == nil && found != n {
					t.Errorf("parked %d, found %d", n, found)
				}
				suite.NoError(t, "park again", h.Store.Park(suite.Context(t), deadLetters))
				if found := look("parked again"); found != n {
					t.Errorf("parked %d again, found %d", n, found)
				}
			}
		}},
		{Name: "AtOnce", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// Two who park the same letters, in whatever order.
			const n = 100
			var deadLetters []driver.DeadLetter
			for i := range int64(n) {
				deadLetters = append(deadLetters, deadLetterOf("0", i))
			}
			for range 5 {
				for err := range race(t, 4, func(i int) error {
					s, own := h.Store, slices.Clone(deadLetters)
					if i%2 == 1 {
						s = h.peer()
						slices.Reverse(own)
					}
					return s.Park(suite.Context(t), own)
				}) {
					suite.NoError(t, "one of four who park the same", err)
				}
				if found := h.deadLetters(t); len(found) != n {
					t.Errorf("%d dead letters, want %d", len(found), n)
				}
			}
		}},
		{Name: "ParkCancelled", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			ctx, cancel := context.WithCancel(suite.Context(t))
			cancel()
			_, due := h.Store.Due(ctx, testGroup, "0", 10)
			_, after := h.Store.Parked(ctx, testGroup, "0", "incarnation 1", -1)
			_, held := h.Store.Held(ctx, testGroup, "0", nil)
			for what, err := range map[string]error{
				"park": h.Store.Park(ctx, []driver.DeadLetter{deadLetterOf("0", 5)}), "due": due, "parked": after, "held": held,
				"settle": h.Store.Settle(ctx, testGroup, []int64{1}, nil),
			} {
				if err == nil {
					t.Errorf("%s with a context that has ended: no error", what)
				}
			}
			if found := h.deadLetters(t); len(found) != 0 {
				t.Errorf("parked with a context that had ended: %v", found)
			}
		}},
	}
}

// settleChecks are about retries: Due and Settle.
func settleChecks() []suite.Check[DeadLetterQueueHarness] {
	return []suite.Check[DeadLetterQueueHarness]{
		{Name: "Due", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			found := h.park(t, deadLetterOf("0", 8), deadLetterOf("0", 3), deadLetterOf("0", 5), deadLetterOf("0", 4), deadLetterOf("0", 2), deadLetterOf("0", 1), deadLetterOf("1", 7))
			if got := h.due(t, 10); got != nil {
				t.Errorf("due without any retry: events %v", got)
			}
			h.redrive(t, found[8].ID, found[7].ID)
			h.redriveAt(t, time.Now().Add(-time.Hour), found[3].ID)
			h.redriveAt(t, time.Now().Add(-24*time.Hour), found[5].ID)
			h.redriveAt(t, time.Now().Add(time.Hour), found[2].ID)
			if got := h.due(t, 10); !slices.Equal(got, []int64{3, 5, 8}) {
				t.Errorf("due are events %v, want 3, 5, 8", got)
			}
			if got := h.due(t, 2); !slices.Equal(got, []int64{3, 5}) {
				t.Errorf("due, at most two, are events %v, want 3, 5", got)
			}
			soon := time.Now().Add(4 * suite.Moment)
			h.redriveAt(t, soon, found[4].ID)
			if got := h.due(t, 10); slices.Contains(got, 4) && time.Now().Before(soon.Add(-10*time.Millisecond)) {
				t.Errorf("a retry is due %v early", time.Until(soon))
			}
			suite.Eventually(t, "the retry of event 4 is due", func() bool { return slices.Equal(h.due(t, 10), []int64{3, 4, 5, 8}) })
			h.discard(t, found[3].ID)
			if got := h.due(t, 10); !slices.Equal(got, []int64{4, 5, 8}) {
				t.Errorf("due after one was discarded are events %v, want 4, 5, 8", got)
			}
		}},
		{Name: "Settle", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			five, six := deadLetterOf("0", 5), deadLetterOf("0", 6)
			five.Event.Properties = map[string]any{"n": int32(5)}
			found := h.park(t, five, six, deadLetterOf("0", 7), deadLetterOf("0", 8), deadLetterOf("0", 9))
			h.redrive(t, found[5].ID, found[6].ID, found[7].ID, found[8].ID, found[9].ID)
			failed := found[5] // as listed: without body and properties
			failed.Status, failed.NextAttempt = driver.StatusDead, time.Time{}
			failed.Error, failed.Attempts, failed.FailedAt = "failed again", 4, five.FailedAt.Add(time.Hour)
			later := found[6]
			later.Status, later.NextAttempt = driver.StatusRetry, time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
			h.settle(t, []int64{found[7].ID, found[8].ID}, failed, later)
			failed.Event = five.Event
			sameDeadLetter(t, "a retry that failed", h.get(t, failed.ID), failed)
			if got := h.get(t, later.ID); got.Status != driver.StatusRetry || !got.NextAttempt.Equal(later.NextAttempt) || !bytes.Equal(got.Event.Body, six.Event.Body) {
				t.Errorf("returned for another retry at %v: got %s at %v with body %q", later.NextAttempt, got.Status, got.NextAttempt, got.Event.Body)
			}
			for _, sequence := range []int64{7, 8} {
				if _, err := h.DeadLetters.Get(suite.Context(t), testGroup, found[sequence].ID); !errors.Is(err, driver.ErrNotFound) {
					t.Errorf("get of a dead letter that was applied: %v", err)
				}
			}
			if got := h.due(t, 10); !slices.Equal(got, []int64{9}) {
				t.Errorf("due after four were settled are events %v, want 9", got)
			}
			h.settle(t, nil)
			if left := h.deadLetters(t); len(left) != 3 {
				t.Errorf("left are %v, want events 5, 6, 9", left)
			}
		}},
		{Name: "SettleOthers", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// Dead letters that are no longer marked for redrive are skipped, and the
			// rest are settled.
			found := h.park(t, deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("0", 7), deadLetterOf("0", 8), deadLetterOf("1", 9))
			h.redrive(t, found[6].ID, found[7].ID, found[8].ID, found[9].ID)
			h.discard(t, found[6].ID)
			h.settle(t, []int64{found[7].ID})
			before := h.deadLetters(t)
			again := func(sequence int64) driver.DeadLetter {
				l := found[sequence]
				l.Status, l.Error, l.NextAttempt = driver.StatusDead, "failed again", time.Time{}
				return l
			}
			h.settle(t, []int64{found[5].ID, found[6].ID, found[7].ID, 1 << 40, -1, 0})
			gone := again(7)
			unknown := again(7)
			unknown.ID = 1 << 40
			h.settle(t, nil, again(5), again(6), gone, unknown)
			for _, g := range otherGroups {
				suite.NoError(t, "settle in another group", h.Store.Settle(suite.Context(t), g, []int64{found[8].ID}, nil))
				suite.NoError(t, "settle in another group", h.Store.Settle(suite.Context(t), g, nil, []driver.DeadLetter{again(9)}))
			}
			if after := h.deadLetters(t); !reflect.DeepEqual(before, after) {
				t.Errorf("settled what is not on retry: it was %+v, is %+v", before, after)
			}
			h.settle(t, []int64{found[5].ID, found[8].ID, found[7].ID}, again(6), again(9))
			left := h.deadLetters(t)
			if l, there := left[9]; len(left) != 3 || !there || l.Status != driver.StatusDead || l.Error != "failed again" || left[5].Status != driver.StatusDead || left[6].Status != driver.StatusDiscarded {
				t.Errorf("left are %+v, want event 5 dead, 6 discarded, 9 dead again", left)
			}
		}},
		{Name: "SettleMany", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			const n = 600
			var deadLetters []driver.DeadLetter
			for i := range int64(n) {
				deadLetters = append(deadLetters, deadLetterOf("0", i))
			}
			h.park(t, deadLetters...)
			_, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{}, time.Time{})
			suite.NoError(t, "redrive", err)
			due, err := h.Store.Due(suite.Context(t), testGroup, "0", n)
			suite.NoError(t, "due", err)
			var applied []int64
			var returned []driver.DeadLetter
			for i, l := range due {
				if i%2 == 0 {
					applied = append(applied, l.ID)
					continue
				}
				l.Status, l.NextAttempt, l.Error = driver.StatusDead, time.Time{}, fmt.Sprint("again ", l.Event.Sequence)
				returned = append(returned, l)
			}
			h.settle(t, applied, returned...)
			left := h.deadLetters(t)
			for sequence, l := range left {
				if sequence%2 == 0 || l.Error != fmt.Sprint("again ", sequence) || l.Status != driver.StatusDead {
					t.Errorf("left is %+v", l)
				}
			}
			if len(left) != n/2 {
				t.Errorf("%d are left of %d, half of which were applied", len(left), n)
			}
		}},
		{Name: "SettleMeetsPark", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			// A command marks, another owner parks again, one settles: every
			// letter ends up once, or is gone.
			for round := range int64(5) {
				id := h.park(t, deadLetterOf("0", round))[round].ID
				h.redrive(t, id)
				for err := range race(t, 3, func(i int) error {
					switch i {
					case 0:
						return h.Store.Settle(suite.Context(t), testGroup, []int64{id}, nil)
					case 1:
						_, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{}, time.Time{})
						return err
					}
					return h.peer().Park(suite.Context(t), []driver.DeadLetter{deadLetterOf("0", round)})
				}) {
					suite.NoError(t, "one of three at once", err)
				}
				if left := h.deadLetters(t); len(left) > int(round)+1 {
					t.Fatalf("left are %v", left)
				}
			}
		}},
	}
}

// queueReadChecks are about what an engine asks at its start: Parked and Held.
func queueReadChecks() []suite.Check[DeadLetterQueueHarness] {
	return []suite.Check[DeadLetterQueueHarness]{
		{Name: "Parked", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			found := h.park(t, deadLetterOf("0", 8), deadLetterOf("0", 0), deadLetterOf("0", 3), deadLetterOf("0", 1<<62+1), deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("1", 7))
			other := deadLetterOf("0", 4)
			other.Incarnation = "incarnation 2"
			stranger := deadLetterOf("0", 2)
			stranger.Group = otherGroups[0]
			suite.NoError(t, "park", h.Store.Park(suite.Context(t), []driver.DeadLetter{other, stranger}))
			h.redrive(t, found[5].ID)
			h.discard(t, found[6].ID)
			for after, want := range map[int64][]int64{
				driver.Unset.Sequence:  {0, 3, 5, 6, 8, 1<<62 + 1},
				driver.Origin.Sequence: {0, 3, 5, 6, 8, 1<<62 + 1},
				0:                      {3, 5, 6, 8, 1<<62 + 1},
				4:                      {5, 6, 8, 1<<62 + 1},
				5:                      {6, 8, 1<<62 + 1},
				8:                      {1<<62 + 1},
				1<<62 + 1:              nil,
			} {
				got, err := h.Store.Parked(suite.Context(t), testGroup, "0", "incarnation 1", after)
				suite.NoError(t, "parked", err)
				if !slices.Equal(numbersOf(got), want) {
					t.Errorf("parked after %d are %v, want %v", after, got, want)
				}
				for _, p := range got {
					if n := p.Position.Sequence; p.ID != found[n].ID || p.Position.Offset != found[n].Event.Offset {
						t.Errorf("parked is %+v, want dead letter %d with offset %q", p, found[n].ID, found[n].Event.Offset)
					}
				}
			}
			h.redrive(t, found[3].ID)
			h.settle(t, []int64{found[3].ID})
			got, err := h.Store.Parked(suite.Context(t), testGroup, "0", "incarnation 1", 0)
			suite.NoError(t, "parked", err)
			if !slices.Equal(numbersOf(got), []int64{5, 6, 8, 1<<62 + 1}) {
				t.Errorf("parked after 3 was settled are %v, want 5, 6, 8 and the last", got)
			}
		}},
		{Name: "ParkedMany", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			var deadLetters []driver.DeadLetter
			var want []int64
			for i := range int64(1500) {
				l := deadLetterOf("0", 3*i)
				l.HasBody, l.Event.Body = false, nil
				deadLetters = append(deadLetters, l)
				want = append(want, 3*i)
			}
			h.park(t, deadLetters...)
			got, err := h.Store.Parked(suite.Context(t), testGroup, "0", "incarnation 1", -1)
			suite.NoError(t, "parked", err)
			if !slices.Equal(numbersOf(got), want) {
				t.Errorf("%d are parked, want %d, each in its place", len(got), len(want))
			}
		}},
		setAside,
		{Name: "Held", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			except := []int64(nil)
			held := func(want ...string) {
				t.Helper()
				keys, err := h.Store.Held(suite.Context(t), testGroup, "0", except)
				suite.NoError(t, "held", err)
				var got []string
				for _, k := range keys {
					got = append(got, fmt.Sprintf("%s from %d of %s", k.Key, k.First, strings.TrimPrefix(k.Incarnation, "incarnation ")))
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("keys held are %q, want %q", got, want)
				}
			}
			held()
			recreated, newest := deadLetterWithKey("0", 1, "b"), deadLetterWithKey("0", 10, "b")
			recreated.Incarnation = "incarnation 0"
			found := h.park(t, newest, recreated, deadLetterWithKey("0", 3, "a"), deadLetterWithKey("0", 2, "a"), deadLetterWithKey("0", 4, "A"), deadLetterWithKey("0", 5, "a "), deadLetterWithKey("0", 6, `√ "'%_\`),
				deadLetterWithKey("0", 7, ""), deadLetterWithKey("1", 8, "other"), deadLetterWithKey("0", 9, "b"))
			stranger := deadLetterWithKey("0", 2, "stranger")
			stranger.Group = otherGroups[0]
			suite.NoError(t, "park", h.Store.Park(suite.Context(t), []driver.DeadLetter{stranger}))
			always := []string{"b from 1 of 0", "a  from 5 of 1", `√ "'%_\ from 6 of 1`}
			held(append(always, "a from 2 of 1", "A from 4 of 1", "b from 9 of 1")...) // an event without a key holds nothing back
			h.redrive(t, found[9].ID)
			h.discard(t, found[2].ID, found[4].ID)
			held(append(always, "a from 3 of 1", "b from 9 of 1")...)
			except = []int64{found[9].ID, found[2].ID, found[3].ID}
			held(append(always, "b from 10 of 1")...)
			except = []int64{}
			h.discard(t, found[3].ID)
			h.settle(t, []int64{found[9].ID})
			held(append(always, "b from 10 of 1")...)
			h.redrive(t, found[4].ID)
			held(append(always, "A from 4 of 1", "b from 10 of 1")...)
		}},
		{Name: "Count", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			checkCount(t, h.DeadLetters, "nothing", driver.DeadLetterFilter{})
			stored := h.park(t, deadLetterOf("0", 1), deadLetterOf("0", 2), deadLetterOf("0", 3), deadLetterOf("1", 4), deadLetterOf("1", 5))
			h.redrive(t, stored[2].ID, stored[5].ID)
			h.discard(t, stored[3].ID)
			for name, filter := range map[string]driver.DeadLetterFilter{
				"nothing":   {},
				"partition": {Partition: "1"},
				"ids":       {IDs: []int64{stored[1].ID, stored[5].ID}},
				"status":    {Status: []driver.DeadLetterStatus{driver.StatusDead, driver.StatusRetry}},
				"limit":     {Limit: 1},
			} {
				checkCount(t, h.DeadLetters, name, filter)
			}
		}},
		{Name: "GroupsApart", Run: func(t testing.TB, h DeadLetterQueueHarness) {
			h.park(t, deadLetterWithKey("0", 5, "own"))
			var deadLetters []driver.DeadLetter
			for i, g := range otherGroups {
				l := deadLetterWithKey("0", 5, fmt.Sprint("key ", i)) // only the group differs
				l.Group, l.Error = g, fmt.Sprint("of stranger ", i)
				deadLetters = append(deadLetters, l)
			}
			suite.NoError(t, "park", h.Store.Park(suite.Context(t), deadLetters)) // of several groups in one go
			for i, g := range otherGroups {
				_, err := h.DeadLetters.Redrive(suite.Context(t), g, driver.DeadLetterFilter{}, time.Time{})
				suite.NoError(t, "redrive", err)
				list, err := h.DeadLetters.List(suite.Context(t), g, driver.DeadLetterFilter{})
				suite.NoError(t, "list", err)
				due, err := h.Store.Due(suite.Context(t), g, "0", 10)
				suite.NoError(t, "due", err)
				if len(list) != 1 || len(due) != 1 || list[0].Group != g || list[0].Error != deadLetters[i].Error || due[0].ID != list[0].ID {
					t.Fatalf("group %v: listed %+v, due %+v; want its own alone", g, list, due)
				}
				keys, err := h.Store.Held(suite.Context(t), g, "0", nil)
				suite.NoError(t, "held", err)
				numbers, err := h.Store.Parked(suite.Context(t), g, "0", "incarnation 1", 0)
				suite.NoError(t, "parked", err)
				if !slices.Equal(keys, []driver.HeldKey{{Key: deadLetters[i].Event.Key, Incarnation: deadLetters[i].Incarnation, First: 5}}) || !slices.Equal(numbersOf(numbers), []int64{5}) {
					t.Errorf("group %v: keys %+v, events %v; want its own alone", g, keys, numbers)
				}
				if i%2 == 0 {
					suite.NoError(t, "settle", h.Store.Settle(suite.Context(t), g, []int64{list[0].ID}, nil))
				}
			}
			for i, g := range otherGroups {
				list, err := h.DeadLetters.List(suite.Context(t), g, driver.DeadLetterFilter{})
				suite.NoError(t, "list", err)
				if len(list) != i%2 {
					t.Errorf("group %v: %d dead letters, want %d", g, len(list), i%2)
				}
			}
			if own := h.deadLetters(t); len(own) != 1 || own[5].Error != "event 5 failed" || own[5].Status != driver.StatusDead {
				t.Errorf("the first group's is %+v, want it as it was", own)
			}
		}},
	}
}
