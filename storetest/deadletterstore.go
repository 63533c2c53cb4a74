package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// TestDeadLetterStore is the conformance suite of [driver.DeadLetterStore], and of
// how a [driver.TxStore] keeps what it serves. Every case asks new for an empty
// database.
func TestDeadLetterStore[Tx any](t *testing.T, new func(t testing.TB) TxHarness[Tx]) {
	suite.Run(t, deadLetterChecks[Tx](), new)
}

// checkCount compares what Count returns with what List does without a limit.
func checkCount(t testing.TB, store driver.DeadLetterStore, name string, filter driver.DeadLetterFilter) {
	t.Helper()
	counts, err := store.Count(suite.Context(t), testGroup, filter)
	suite.NoError(t, "count by "+name, err)
	filter.Limit = 0
	list, err := store.List(suite.Context(t), testGroup, filter)
	suite.NoError(t, "list by "+name, err)
	want := map[driver.DeadLetterCount]int{}
	for _, d := range list {
		want[driver.DeadLetterCount{Partition: d.Event.Partition, Status: d.Status}]++
	}
	got := map[driver.DeadLetterCount]int{}
	for _, c := range counts {
		got[driver.DeadLetterCount{Partition: c.Partition, Status: c.Status}] = c.Count
	}
	if len(counts) != len(want) || !maps.Equal(got, want) {
		t.Errorf("count by %s: got %+v, List has %v", name, counts, want)
	}
}

func deadLetterChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	all := append(readDeadLetterChecks[Tx](), redriveAndDiscardChecks[Tx]()...)
	return append(all, silenceOfDeadLetters[Tx]())
}

// readDeadLetterChecks are about what is read: List and Get.
func readDeadLetterChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "RoundTrip", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			want := fullDeadLetter(5)
			listed := h.park(t, a, want)[5]
			got, err := h.DeadLetters.Get(suite.Context(t), testGroup, listed.ID)
			suite.NoError(t, "get", err)
			want.ID = listed.ID
			sameDeadLetter(t, "get", got, want)
			want.Event.Body, want.Event.Properties, want.Event.Headers, want.Event.Created = nil, nil, nil, time.Time{}
			sameDeadLetter(t, "list, without body, properties and headers", listed, want)
		}},
		{Name: "Bare", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			bare := deadLetterOf("0", 5)
			bare.HasBody, bare.Event.Body, bare.Event.Offset = false, nil, ""
			bare.Event.Enqueued = time.Time{}
			empty := deadLetterOf("0", 6)
			empty.Event.Body, empty.Error, empty.Attempts = []byte{}, "", 0
			null, odd := nullDeadLetter(7), oddDeadLetter(8)
			listed := h.park(t, a, bare, empty, null, odd)
			for sequence, want := range map[int64]driver.DeadLetter{5: bare, 6: empty, 7: null, 8: odd} {
				got, err := h.DeadLetters.Get(suite.Context(t), testGroup, listed[sequence].ID)
				suite.NoError(t, "get", err)
				want.ID = listed[sequence].ID
				sameDeadLetter(t, "get", got, want)
			}
		}},
		{Name: "AnyText", Run: func(t testing.TB, h TxHarness[Tx]) {
			// Databases differ in the text they can hold. What they can't must
			// not stop a partition: it is changed, and the body and the identity
			// stay exact.
			a := h.begin(t)
			for i, hostile := range []string{"\x00", "\xff\xfe", "\xed\xa0\x80", "\xf0\x9f", "\ufffe", "\x1b[0m\r\n", "\u202e"} {
				text := "before" + hostile + "after"
				l := deadLetterOf("0", int64(i))
				l.Error, l.Event.Offset, l.Event.Key, l.Event.MessageID = text, text, text, text
				l.Event.CorrelationID, l.Event.ContentType = text, text
				l.Event.Body = []byte(text)
				l.Event.Properties = map[string]any{"n" + hostile: text}
				id := h.park(t, a, l)[int64(i)].ID
				got, err := h.DeadLetters.Get(suite.Context(t), testGroup, id)
				suite.NoError(t, fmt.Sprintf("get of a dead letter with text %q", text), err)
				if !bytes.Equal(got.Event.Body, l.Event.Body) || !got.HasBody || got.Event.Sequence != int64(i) || len(got.Event.Properties) != 1 {
					t.Errorf("dead letter with text %q: got %+v, want body and identity as they were", text, got)
				}
				for what, kept := range map[string]string{"error": got.Error, "key": got.Event.Key, "message id": got.Event.MessageID} {
					if !strings.HasPrefix(kept, "before") || !strings.HasSuffix(kept, "after") {
						t.Errorf("%s %q became %q, want what can be kept of it", what, text, kept)
					}
				}
				suite.NoError(t, "record an attempt", h.Store.RecordAttempt(suite.Context(t), a, positionAt(9), driver.AttemptRecord{Sequence: 10, Attempts: 1, Error: text}))
				if kept := h.checkpoint(t, "0").Attempt.Error; !strings.HasPrefix(kept, "before") || !strings.HasSuffix(kept, "after") {
					t.Errorf("error %q of a trial became %q", text, kept)
				}
			}
		}},
		{Name: "Filter", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var deadLetters []driver.DeadLetter
			for i := range int64(8) {
				l := deadLetterOf("0", i)
				l.FailedAt = l.FailedAt.Add(time.Duration(i) * time.Hour)
				l.Event.Key = fmt.Sprint("key ", i%2)
				l.Error = []string{"Division BY zero", "100% of a_b\\c", "nothing", "plain"}[i%4]
				deadLetters = append(deadLetters, l)
			}
			h.park(t, a, deadLetters...)
			b := leaseOf("1", "a", 1)
			h.claim(t, b)
			h.commit(t, driver.Step{Lease: b, From: driver.Unset, To: positionAt(99), DeadLetters: []driver.DeadLetter{deadLetterOf("1", 90)}}, nil)
			found := h.deadLetters(t)
			h.redrive(t, found[1].ID, found[2].ID)
			_, err := h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: []int64{found[3].ID}})
			suite.NoError(t, "discard", err)
			zero, two, five := int64(0), int64(2), int64(5)
			hour := func(n int) time.Time { return deadLetterOf("0", 0).FailedAt.Add(time.Duration(n) * time.Hour) }
			for _, c := range []struct {
				name   string
				filter driver.DeadLetterFilter
				want   []int64
			}{
				{"nothing", driver.DeadLetterFilter{}, []int64{0, 1, 2, 3, 4, 5, 6, 7, 90}},
				{"ids", driver.DeadLetterFilter{IDs: []int64{found[6].ID, found[1].ID, 1 << 40}}, []int64{1, 6}},
				{"no ids", driver.DeadLetterFilter{IDs: []int64{}}, []int64{0, 1, 2, 3, 4, 5, 6, 7, 90}},
				{"partition", driver.DeadLetterFilter{Partition: "1"}, []int64{90}},
				{"no such partition", driver.DeadLetterFilter{Partition: "01"}, nil},
				{"status", driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}}, []int64{1, 2}},
				{"two statuses", driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry, driver.StatusDiscarded}}, []int64{1, 2, 3}},
				{"key", driver.DeadLetterFilter{Key: "key 1"}, []int64{1, 3, 5, 7}},
				{"part of a key", driver.DeadLetterFilter{Key: "key"}, nil},
				{"error", driver.DeadLetterFilter{ErrorContains: "divisION by"}, []int64{0, 4}},
				{"error with a percent sign", driver.DeadLetterFilter{ErrorContains: "0% OF"}, []int64{1, 5}},
				{"error with an underscore", driver.DeadLetterFilter{ErrorContains: "a_b"}, []int64{1, 5}},
				{"error with a backslash", driver.DeadLetterFilter{ErrorContains: `b\c`}, []int64{1, 5}},
				{"percent sign alone", driver.DeadLetterFilter{ErrorContains: "%"}, []int64{1, 5}},
				{"underscore for any letter", driver.DeadLetterFilter{ErrorContains: "n_thing"}, nil},
				{"quote", driver.DeadLetterFilter{ErrorContains: "' OR '1'='1"}, nil},
				{"failed since, inclusive", driver.DeadLetterFilter{FailedSince: hour(6)}, []int64{6, 7}},
				{"failed before, exclusive", driver.DeadLetterFilter{FailedBefore: hour(2), Partition: "0"}, []int64{0, 1}},
				{"failed in another time zone", driver.DeadLetterFilter{FailedSince: hour(6).In(time.FixedZone("east", 9*3600))}, []int64{6, 7}},
				{"sequence numbers from 5", driver.DeadLetterFilter{FirstSequence: &five}, []int64{5, 6, 7, 90}},
				{"sequence numbers up to 2", driver.DeadLetterFilter{LastSequence: &two}, []int64{0, 1, 2}},
				{"sequence number 0", driver.DeadLetterFilter{FirstSequence: &zero, LastSequence: &zero}, []int64{0}},
				{"after an id", driver.DeadLetterFilter{AfterID: found[6].ID}, []int64{7, 90}},
				{"limit", driver.DeadLetterFilter{Limit: 3}, []int64{0, 1, 2}},
				{"all at once", driver.DeadLetterFilter{
					IDs: []int64{found[1].ID, found[5].ID, found[7].ID}, Partition: "0", Status: []driver.DeadLetterStatus{driver.StatusDead, driver.StatusRetry}, Key: "key 1",
					ErrorContains: "of", FailedSince: hour(1), FailedBefore: hour(7), FirstSequence: &zero, LastSequence: &five, AfterID: found[0].ID, Limit: 1,
				}, []int64{1}},
			} {
				checkCount(t, h.DeadLetters, c.name, c.filter)
				list, err := h.DeadLetters.List(suite.Context(t), testGroup, c.filter)
				suite.NoError(t, "list by "+c.name, err)
				var got []int64
				for i, l := range list {
					got = append(got, l.Event.Sequence)
					if i > 0 && list[i-1].ID >= l.ID {
						t.Errorf("list by %s: id %d after %d", c.name, l.ID, list[i-1].ID)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, c.want) {
					t.Errorf("list by %s: got events %v, want %v", c.name, got, c.want)
				}
			}
		}},
		{Name: "Paging", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			var deadLetters []driver.DeadLetter
			for i := range int64(25) {
				deadLetters = append(deadLetters, deadLetterOf("0", i))
			}
			h.park(t, a, deadLetters...)
			seen := make(map[int64]bool)
			filter := driver.DeadLetterFilter{Limit: 10}
			for _, want := range []int{10, 10, 5, 0} {
				page, err := h.DeadLetters.List(suite.Context(t), testGroup, filter)
				suite.NoError(t, "list", err)
				if len(page) != want {
					t.Fatalf("page of %d dead letters, want %d", len(page), want)
				}
				for _, l := range page {
					if l.ID <= filter.AfterID || seen[l.Event.Sequence] {
						t.Errorf("dead letter %d of event %d is on a page after id %d", l.ID, l.Event.Sequence, filter.AfterID)
					}
					seen[l.Event.Sequence] = true
					filter.AfterID = l.ID
				}
			}
		}},
		{Name: "NotFound", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			for _, id := range []int64{-1, 0, 1, math.MaxInt64} {
				_, err := h.DeadLetters.Get(suite.Context(t), testGroup, id)
				suite.ErrorIs(t, fmt.Sprintf("get of dead letter %d", id), err, driver.ErrNotFound)
			}
			id := h.park(t, a, deadLetterOf("0", 5))[5].ID
			for _, g := range otherGroups {
				_, err := h.DeadLetters.Get(suite.Context(t), g, id)
				suite.ErrorIs(t, "get of another group's", err, driver.ErrNotFound)
			}
		}},
	}
}

// redriveAndDiscardChecks are about Redrive and Discard.
func redriveAndDiscardChecks[Tx any]() []suite.Check[TxHarness[Tx]] {
	return []suite.Check[TxHarness[Tx]]{
		{Name: "Retry", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 5), deadLetterOf("0", 6))
			five := driver.DeadLetterFilter{IDs: []int64{found[5].ID}}
			mark := func(at time.Time) driver.DeadLetter {
				t.Helper()
				n, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, five, at)
				suite.NoError(t, "redrive", err)
				if n != 1 {
					t.Errorf("retry of one dead letter marked %d", n)
				}
				l := h.deadLetters(t)[5]
				if l.Status != driver.StatusRetry {
					t.Errorf("status %s after retry", l.Status)
				}
				return l
			}
			later := time.Date(2099, 1, 2, 3, 4, 5, 678_000_000, time.FixedZone("west", -5*3600))
			if l := mark(later); !l.NextAttempt.Equal(later) {
				t.Errorf("retry at %v, asked for %v", l.NextAttempt, later)
			}
			checkDuePartitions(t, h.Store, testGroup)
			if l := mark(later.Add(time.Hour)); !l.NextAttempt.Equal(later.Add(time.Hour)) {
				t.Errorf("marked again for %v, retry is at %v", later.Add(time.Hour), l.NextAttempt)
			}
			asked := time.Now()
			if l := mark(time.Time{}); l.NextAttempt.Before(asked.Add(-suite.Patience)) || l.NextAttempt.After(time.Now().Add(time.Second)) {
				t.Errorf("retry now is at %v, now is %v", l.NextAttempt, time.Now())
			}
			due, err := h.Store.Due(suite.Context(t), testGroup, "0", 10)
			suite.NoError(t, "due", err)
			if len(due) != 1 || due[0].ID != found[5].ID {
				t.Errorf("due are %v, want event 5 alone", due)
			}
			checkDuePartitions(t, h.Store, testGroup, "0")
			if l := h.deadLetters(t)[6]; l.Status != driver.StatusDead || !l.NextAttempt.IsZero() {
				t.Errorf("the other dead letter has status %s and time %v, want dead and none", l.Status, l.NextAttempt)
			}
		}},
		{Name: "Discard", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 5), deadLetterOf("0", 6), deadLetterOf("0", 7))
			h.redrive(t, found[5].ID, found[6].ID)
			checkDuePartitions(t, h.Store, testGroup, "0")
			checkDuePartitions(t, h.Store, otherGroups[0])
			last := int64(6)
			for range 2 { // discarding twice changes nothing
				n, err := h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{LastSequence: &last})
				suite.NoError(t, "discard", err)
				if n > 2 {
					t.Errorf("discarded %d of two", n)
				}
				for sequence, l := range h.deadLetters(t) {
					if want := sequence <= 6; (l.Status == driver.StatusDiscarded) != want || !l.NextAttempt.IsZero() {
						t.Errorf("event %d has status %s and time %v after the first two were discarded", sequence, l.Status, l.NextAttempt)
					}
				}
			}
			checkDuePartitions(t, h.Store, testGroup)
			h.redrive(t, found[6].ID) // a decision can be taken back
			if l, err := h.DeadLetters.Get(suite.Context(t), testGroup, found[6].ID); err != nil || l.Status != driver.StatusRetry || string(l.Event.Body) != "body 6" {
				t.Errorf("discarded, then on retry: got %+v, %v", l, err)
			}
		}},
		{Name: "Counts", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			found := h.park(t, a, deadLetterOf("0", 1), deadLetterOf("0", 2), deadLetterOf("0", 3), deadLetterOf("0", 4))
			count := func(what string, n int64, err error, want int64) {
				t.Helper()
				suite.NoError(t, what, err)
				if n != want {
					t.Errorf("%s: %d, want %d", what, n, want)
				}
			}
			n, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{Limit: 2}, time.Time{})
			count("retry of at most two", n, err, 2)
			if l := h.deadLetters(t); l[1].ID < l[3].ID && (l[1].Status != driver.StatusRetry || l[3].Status != driver.StatusDead) {
				t.Errorf("retry of at most two did not begin at the lowest id: %v", l)
			}
			n, err = h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusDead}})
			count("discard of those dead", n, err, 2)
			n, err = h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{Partition: "7"}, time.Time{})
			count("retry in another partition", n, err, 0)
			n, err = h.DeadLetters.Redrive(suite.Context(t), otherGroups[0], driver.DeadLetterFilter{}, time.Time{})
			count("retry in another group", n, err, 0)
			n, err = h.DeadLetters.Discard(suite.Context(t), otherGroups[1], driver.DeadLetterFilter{IDs: []int64{found[1].ID}})
			count("discard in another group", n, err, 0)
			n, err = h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{AfterID: found[4].ID})
			count("discard after the last", n, err, 0)
		}},
		{Name: "GroupsApart", Run: func(t testing.TB, h TxHarness[Tx]) {
			a := h.begin(t)
			h.park(t, a, deadLetterOf("0", 5))
			for i, g := range otherGroups {
				l := driver.Lease{Group: g, Partition: "0", Owner: "a", Epoch: 1}
				_, err := h.Store.Claim(suite.Context(t), l, "incarnation 1")
				suite.NoError(t, "claim", err)
				deadLetter := deadLetterOf("0", 5) // only the group differs
				deadLetter.Group, deadLetter.Error = g, fmt.Sprint("of stranger ", i)
				suite.NoError(t, "commit", h.Store.Commit(suite.Context(t), driver.Step{Lease: l, From: driver.Unset, To: positionAt(9), DeadLetters: []driver.DeadLetter{deadLetter}}, nil))
				_, err = h.DeadLetters.Redrive(suite.Context(t), g, driver.DeadLetterFilter{}, time.Time{})
				suite.NoError(t, "redrive", err)
				list, err := h.DeadLetters.List(suite.Context(t), g, driver.DeadLetterFilter{})
				suite.NoError(t, "list", err)
				due, err := h.Store.Due(suite.Context(t), g, "0", 10)
				suite.NoError(t, "due", err)
				if len(list) != 1 || len(due) != 1 || list[0].Group != g || list[0].Error != deadLetter.Error || due[0].ID != list[0].ID {
					t.Errorf("group %v: listed %+v, due %+v; want its own alone", g, list, due)
				}
			}
			if own := h.deadLetters(t); len(own) != 1 || own[5].Error != "event 5 failed" || own[5].Status != driver.StatusDead {
				t.Errorf("the first group's is %+v, want it as it was", own)
			}
		}},
		{Name: "RetryMeetsRedrive", Run: func(t testing.TB, h TxHarness[Tx]) {
			// A command marks while the owner applies: once is once.
			a := h.begin(t)
			var want []string
			for round := range int64(8) {
				id := h.park(t, a, deadLetterOf("0", round))[round].ID
				h.redrive(t, id)
				key := fmt.Sprint(round)
				for err := range race(t, 3, func(i int) error {
					if i > 0 {
						_, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{}, time.Time{})
						return err
					}
					step := driver.Step{Lease: a, From: positionAt(9), To: positionAt(9), Redriven: []int64{id}}
					var err error
					for range 100 { // what the database couldn't do may be tried again
						err = h.Store.Commit(suite.Context(t), step, h.put(key))
						if err == nil || isHandlerError(err) || errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrUnknown) {
							break
						}
					}
					return err
				}) {
					suite.NoError(t, "a redrive, or one of two commands beside it", err)
				}
				want = append(want, key)
				h.wantEffects(t, want...)
				if left := h.deadLetters(t); len(left) != 0 {
					t.Fatalf("left are %v", left)
				}
			}
		}},
	}
}

// fullDeadLetter is a dead letter that uses all there is.
func fullDeadLetter(sequence int64) driver.DeadLetter {
	l := deadLetterOf("0", sequence)
	l.Error = "first line\nsecond 'line' \"√\" \\ % _\t" + strings.Repeat("long ", 4000)
	l.Event.Key, l.Event.MessageID = `key "√" '%_\`, "message 1"
	l.Event.CorrelationID, l.Event.ContentType = "correlation 1", "application/json; charset=utf-8"
	l.Event.Body = make([]byte, 1<<16)
	for i := range l.Event.Body {
		l.Event.Body[i] = byte(i)
	}
	l.Event.Properties = map[string]any{
		"": "no name", "nil": nil, "text": "√ \"'\\", "bool": true,
		"int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(math.MinInt64), "int": 7,
		"uint8": uint8(8), "uint16": uint16(16), "uint32": uint32(32), "uint64": uint64(math.MaxUint64), "uint": uint(9),
		"float32": float32(1.1), "float64": math.Pi, "infinite": math.Inf(-1),
		"bytes": []byte{0, 255}, "time": time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	l.Event.Created = time.Date(2026, 1, 2, 2, 59, 0, 123_000_000, time.UTC)
	l.Event.Headers = []driver.Header{
		{Name: "text", Value: []byte("1")}, {Name: "bytes", Value: []byte{0, 255}}, {Name: "text", Value: []byte("√")},
		{Name: "null"}, {Name: "empty", Value: []byte{}}, {Name: "", Value: []byte("no name")}, {Name: "\xff\x00", Value: []byte("no text")},
	}
	return l
}

// nullDeadLetter is of an event with a null value and an empty key.
func nullDeadLetter(sequence int64) driver.DeadLetter {
	l := deadLetterOf("0", sequence)
	l.Event.Body, l.Event.EmptyKey = nil, true
	return l
}

// oddDeadLetter is of an event whose key is no text, and which has a property that sounds like a
// store's own.
func oddDeadLetter(sequence int64) driver.DeadLetter {
	l := deadLetterOf("0", sequence)
	l.Event.Key = "\x00\xff"
	l.Event.Properties = map[string]any{"sluice-event": "text"}
	return l
}

// sameDeadLetter notes the fields in which a dead letter is not the one wanted.
func sameDeadLetter(t testing.TB, what string, got, want driver.DeadLetter) {
	t.Helper()
	for _, times := range [][2]*time.Time{{&got.FailedAt, &want.FailedAt}, {&got.NextAttempt, &want.NextAttempt}, {&got.Event.Enqueued, &want.Event.Enqueued}, {&got.Event.Created, &want.Event.Created}} {
		if !times[0].Equal(*times[1]) {
			t.Errorf("%s: got time %v, want %v", what, times[0], times[1])
		}
		*times[0], *times[1] = time.Time{}, time.Time{}
	}
	if !bytes.Equal(got.Event.Body, want.Event.Body) {
		t.Errorf("%s: got a body of %d bytes, want %d, the same", what, len(got.Event.Body), len(want.Event.Body))
	}
	if want.HasBody && (got.Event.Body == nil) != (want.Event.Body == nil) {
		t.Errorf("%s: the body is null: %v, want %v", what, got.Event.Body == nil, want.Event.Body == nil)
	}
	for name, value := range want.Event.Properties {
		if w, isTime := value.(time.Time); isTime {
			if g, isTime := got.Event.Properties[name].(time.Time); !isTime || !g.Equal(w) {
				t.Errorf("%s: property %s is %v, want %v", what, name, got.Event.Properties[name], w)
			}
		} else if g := got.Event.Properties[name]; !reflect.DeepEqual(g, value) {
			t.Errorf("%s: property %s is %T %v, want %T %v", what, name, g, g, value, value)
		}
	}
	if len(got.Event.Properties) != len(want.Event.Properties) {
		t.Errorf("%s: %d properties, want %d", what, len(got.Event.Properties), len(want.Event.Properties))
	}
	got.Event.Body, want.Event.Body = nil, nil
	got.Event.Properties, want.Event.Properties = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got  %+v\nwant %+v", what, got, want)
	}
}

// checkDuePartitions checks which partitions a [driver.RedriveFinder] finds.
func checkDuePartitions(t testing.TB, store any, group driver.Group, want ...string) {
	t.Helper()
	finder, is := store.(driver.RedriveFinder)
	if !is {
		return
	}
	for _, asked := range [][]string{{"1", "0", "2"}, {"1", "2"}, {"0"}, nil} {
		got, err := finder.DuePartitions(suite.Context(t), group, asked)
		suite.NoError(t, "due partitions", err)
		due := slices.DeleteFunc(slices.Clone(want), func(p string) bool { return !slices.Contains(asked, p) })
		if slices.Sort(got); !slices.Equal(got, due) {
			t.Errorf("of the partitions %q those with redrives that are due: %q, want %q", asked, got, due)
		}
	}
}
