package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// uncopied returns the sequence numbers of partition 0's dead letters that are not marked as
// copied, in the order of their IDs, which it checks.
func (h DeadLetterQueueHarness) uncopied(t testing.TB, marks driver.CopyMarks, after int64, limit int) (numbers []int64) {
	t.Helper()
	list, err := marks.Uncopied(suite.Context(t), testGroup, "0", after, limit)
	suite.NoError(t, "uncopied", err)
	for i, d := range list {
		if d.ID <= after || i > 0 && d.ID <= list[i-1].ID {
			t.Errorf("dead letter %d of %d that are not copied has ID %d: want the lowest ID above %d first", i, len(list), d.ID, after)
		}
		numbers = append(numbers, d.Event.Sequence)
	}
	return numbers
}

// mark marks dead letters of partition 0 as copied.
func (h DeadLetterQueueHarness) mark(t testing.TB, marks driver.CopyMarks, dead ...driver.DeadLetter) {
	t.Helper()
	suite.NoError(t, "mark copied", marks.MarkCopied(suite.Context(t), testGroup, "0", parkedEventsOf(dead)))
}

func parkedEventsOf(dead []driver.DeadLetter) []driver.ParkedEvent {
	events := make([]driver.ParkedEvent, len(dead))
	for i := range dead {
		events[i] = driver.ParkedEvent{ID: dead[i].ID, Position: dead[i].Event.Position()}
	}
	return events
}

// copyChecks are about [driver.CopyMarks]. A store that is none has nothing to check.
func copyChecks() []suite.Check[DeadLetterQueueHarness] {
	check := func(name string, run func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks)) suite.Check[DeadLetterQueueHarness] {
		return suite.Check[DeadLetterQueueHarness]{Name: name, Run: func(t testing.TB, h DeadLetterQueueHarness) {
			if marks, is := h.Store.(driver.CopyMarks); is {
				run(t, h, marks)
			}
		}}
	}
	return []suite.Check[DeadLetterQueueHarness]{
		check("Uncopied", func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks) {
			if got := h.uncopied(t, marks, 0, 10); got != nil {
				t.Errorf("an empty store has events %v to copy", got)
			}
			full := fullDeadLetter(1)
			stranger := deadLetterOf("0", 7)
			stranger.Group = otherGroups[0]
			suite.NoError(t, "park", h.Store.Park(suite.Context(t), []driver.DeadLetter{stranger}))
			found := h.park(t, full, deadLetterOf("0", 2), deadLetterOf("0", 3), deadLetterOf("0", 4), deadLetterOf("1", 5))
			h.redrive(t, found[2].ID)
			h.discard(t, found[3].ID)
			list, err := marks.Uncopied(suite.Context(t), testGroup, "0", 0, 10)
			suite.NoError(t, "uncopied", err)
			for _, d := range list {
				sameDeadLetter(t, "not copied", d, h.get(t, d.ID))
			}
			numbers := h.uncopied(t, marks, 0, 10)
			if sorted := slices.Sorted(slices.Values(numbers)); !slices.Equal(sorted, []int64{1, 2, 3, 4}) {
				t.Fatalf("not copied are events %v of partition 0, want 1 to 4, of any status", sorted)
			}
			if got := h.uncopied(t, marks, 0, 2); !slices.Equal(got, numbers[:2]) {
				t.Errorf("not copied, at most two, are events %v, want %v", got, numbers[:2])
			}
			if got := h.uncopied(t, marks, found[numbers[1]].ID, 10); !slices.Equal(got, numbers[2:]) {
				t.Errorf("not copied after the second are events %v, want %v", got, numbers[2:])
			}
			h.mark(t, marks, found[2], found[4])
			h.mark(t, marks, found[2])
			h.mark(t, marks)
			if got := slices.Sorted(slices.Values(h.uncopied(t, marks, 0, 10))); !slices.Equal(got, []int64{1, 3}) {
				t.Errorf("events 2 and 4 are copied: not copied are %v, want 1 and 3", got)
			}
			if got := h.deadLetters(t); len(got) != 5 || got[2].Status != driver.StatusRetry || got[3].Status != driver.StatusDiscarded {
				t.Errorf("marks have changed dead letters: %v", got)
			}
		}),
		check("MarksStay", func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks) {
			found := h.park(t, deadLetterOf("0", 1), deadLetterOf("0", 2), deadLetterOf("0", 3), deadLetterOf("0", 4), deadLetterOf("0", 5))
			h.mark(t, marks, found[1], found[2], found[3], found[4])
			h.park(t, deadLetterOf("0", 1))
			h.redrive(t, found[2].ID)
			failed := found[2]
			failed.Error = "failed again"
			h.settle(t, nil, failed)
			h.discard(t, found[3].ID)
			suite.NoError(t, "set aside", h.Store.SetAside(suite.Context(t), testGroup, "0", "incarnation 1/lost", parkedEventsOf([]driver.DeadLetter{found[4], found[5]})))
			if got := h.uncopied(t, marks, 0, 10); !slices.Equal(got, []int64{5}) {
				t.Errorf("not copied are events %v, want 5: others failed again, were discarded or set aside after they were copied", got)
			}
		}),
		check("MarkOthers", func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks) {
			found := h.park(t, deadLetterOf("0", 1), deadLetterOf("0", 2), deadLetterOf("0", 3))
			one := parkedEventsOf([]driver.DeadLetter{found[1]})
			suite.NoError(t, "mark in another partition", marks.MarkCopied(suite.Context(t), testGroup, "1", one))
			for _, g := range otherGroups {
				suite.NoError(t, "mark in another group", marks.MarkCopied(suite.Context(t), g, "0", one))
			}
			if got := h.uncopied(t, marks, 0, 10); len(got) != 3 {
				t.Errorf("marks of another partition and other groups count here: not copied are %v", got)
			}
			// One that is gone is skipped, and the others are marked.
			h.redrive(t, found[2].ID)
			h.settle(t, []int64{found[2].ID})
			h.mark(t, marks, found[2], found[3])
			if got := h.uncopied(t, marks, 0, 10); !slices.Equal(got, []int64{1}) {
				t.Errorf("not copied are events %v, want 1", got)
			}
			// The event of one that is gone becomes a dead letter once more.
			again := h.park(t, deadLetterOf("0", 2))[2]
			if got := slices.Sorted(slices.Values(h.uncopied(t, marks, 0, 10))); !slices.Equal(got, []int64{1, 2}) {
				t.Errorf("a dead letter whose event had another one before, which was copied: not copied are %v, want 1 and 2", got)
			}
			if again.ID == found[3].ID {
				t.Errorf("ID %d belongs to two dead letters", again.ID)
			}
		}),
		check("MarkMany", func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks) {
			// Beside a command, and a second owner that copies the same.
			const n = 200
			var dead []driver.DeadLetter
			for i := range int64(n) {
				dead = append(dead, deadLetterOf("0", i))
			}
			h.park(t, dead...)
			list, err := marks.Uncopied(suite.Context(t), testGroup, "0", 0, n)
			suite.NoError(t, "uncopied", err)
			for err := range race(t, 4, func(i int) error {
				copied := parkedEventsOf(list)
				switch i {
				case 0:
					_, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{}, time.Time{})
					return err
				case 1:
					slices.Reverse(copied)
					return h.peer().(driver.CopyMarks).MarkCopied(suite.Context(t), testGroup, "0", copied)
				}
				return marks.MarkCopied(suite.Context(t), testGroup, "0", copied)
			}) {
				suite.NoError(t, "one of four at once", err)
			}
			if got := h.uncopied(t, marks, 0, n); got != nil {
				t.Errorf("%d of %d are not marked", len(got), n)
			}
		}),
		check("MarkCancelled", func(t testing.TB, h DeadLetterQueueHarness, marks driver.CopyMarks) {
			found := h.park(t, deadLetterOf("0", 1))
			ctx, cancel := context.WithCancel(suite.Context(t))
			cancel()
			_, err := marks.Uncopied(ctx, testGroup, "0", 0, 10)
			for what, err := range map[string]error{"uncopied": err, "mark": marks.MarkCopied(ctx, testGroup, "0", parkedEventsOf([]driver.DeadLetter{found[1]}))} {
				if err == nil {
					t.Errorf("%s with a context that has ended: no error", what)
				}
			}
			if got := h.uncopied(t, marks, 0, 10); !slices.Equal(got, []int64{1}) {
				t.Errorf("marked with a context that had ended: not copied are %v", fmt.Sprint(got))
			}
		}),
	}
}
