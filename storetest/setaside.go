package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// setAside is about dead letters of events that the log has lost, and whose numbers others have.
var setAside = suite.Check[DeadLetterQueueHarness]{Name: "SetAside", Run: func(t testing.TB, h DeadLetterQueueHarness) {
	aside := driver.LostIncarnation("incarnation 1", "leader-epoch 7")
	found := h.park(t, deadLetterWithKey("0", 4, "a"), deadLetterWithKey("0", 5, "a"), deadLetterWithKey("0", 6, "b"))
	h.parkOne(t, deadLetterOf("1", 5))
	stranger := deadLetterOf("0", 5)
	stranger.Group = otherGroups[0]
	h.parkOne(t, stranger)
	h.redrive(t, found[6].ID)
	parked := func(incarnation string) []driver.ParkedEvent {
		t.Helper()
		list, err := h.Store.Parked(suite.Context(t), testGroup, "0", incarnation, -1)
		suite.NoError(t, "parked", err)
		return list
	}
	lost := parked("incarnation 1")
	if !slices.Equal(numbersOf(lost), []int64{4, 5, 6}) {
		t.Fatalf("parked are %v, want events 4 to 6", lost)
	}
	lost = lost[1:]
	for range 2 { // the answer to the first may have been lost
		suite.NoError(t, "set aside", h.Store.SetAside(suite.Context(t), testGroup, "0", aside, lost))
		suite.NoError(t, "set none aside", h.Store.SetAside(suite.Context(t), testGroup, "0", aside, nil))
		if got, left := parked(aside), parked("incarnation 1"); !slices.Equal(got, lost) || !slices.Equal(numbersOf(left), []int64{4}) {
			t.Fatalf("set aside are %v, want %v; left are %v, want event 4", got, lost, left)
		}
	}
	five := h.get(t, lost[0].ID)
	want := deadLetterWithKey("0", 5, "a")
	want.ID, want.Incarnation = lost[0].ID, aside
	sameDeadLetter(t, "set aside", five, want)
	due, err := h.Store.Due(suite.Context(t), testGroup, "0", 10)
	suite.NoError(t, "due", err)
	if len(due) != 1 || due[0].ID != lost[1].ID || due[0].Incarnation != aside {
		t.Errorf("due are %+v, want event 6 of %q", due, aside)
	}
	keys, err := h.Store.Held(suite.Context(t), testGroup, "0", nil)
	suite.NoError(t, "held", err)
	slices.SortFunc(keys, func(a, b driver.HeldKey) int { return int(a.First - b.First) })
	if want := []driver.HeldKey{{Key: "a", Incarnation: "incarnation 1", First: 4}, {Key: "a", Incarnation: aside, First: 5}, {Key: "b", Incarnation: aside, First: 6}}; !slices.Equal(keys, want) {
		t.Errorf("held keys are %+v, want %+v", keys, want)
	}

	// The event that has the number now is another one.
	other := deadLetterOf("0", 5)
	other.Event.Body, other.Error = []byte("another event"), "another error"
	h.parkOne(t, other)
	again := parked("incarnation 1")
	if !slices.Equal(numbersOf(again), []int64{4, 5}) || again[1].ID == lost[0].ID {
		t.Fatalf("parked are %v, want events 4 and 5, the latter not as %d", again, lost[0].ID)
	}
	if got := h.get(t, again[1].ID); string(got.Event.Body) != "another event" || got.Error != other.Error {
		t.Errorf("the dead letter of the event that has the number now is %+v", got)
	}
	sameDeadLetter(t, "set aside, after another of its number", h.get(t, lost[0].ID), want)

	// A dead letter of the lost event that was stored late.
	suite.NoError(t, "set a second one aside", h.Store.SetAside(suite.Context(t), testGroup, "0", aside, again[1:]))
	if got, left := parked(aside), parked("incarnation 1"); !slices.Equal(got, lost) || !slices.Equal(numbersOf(left), []int64{4}) {
		t.Errorf("set aside are %v, want those of before: %v; left are %v, want event 4", got, lost, left)
	}
	// What is gone, and what others have.
	suite.NoError(t, "set aside what is gone", h.Store.SetAside(suite.Context(t), testGroup, "0", aside, again[1:]))
	if got := h.get(t, found[4].ID); got.Incarnation != "incarnation 1" {
		t.Errorf("event 4 is of incarnation %q", got.Incarnation)
	}
	if list, err := h.Store.Parked(suite.Context(t), testGroup, "1", "incarnation 1", -1); err != nil || len(list) != 1 {
		t.Errorf("of the other partition %v are parked (%v), want event 5", list, err)
	}
	if list, err := h.Store.Parked(suite.Context(t), otherGroups[0], "0", "incarnation 1", -1); err != nil || len(list) != 1 {
		t.Errorf("of the other group %v are parked (%v), want event 5", list, err)
	}
}}

// parkOne stores a dead letter.
func (h *DeadLetterQueueHarness) parkOne(t testing.TB, d driver.DeadLetter) {
	t.Helper()
	suite.NoError(t, fmt.Sprint("park event ", d.Event.Sequence), h.Store.Park(suite.Context(t), []driver.DeadLetter{d}))
}

// numbersOf returns the sequence numbers of events.
func numbersOf(parked []driver.ParkedEvent) (numbers []int64) {
	for _, p := range parked {
		numbers = append(numbers, p.Position.Sequence)
	}
	return numbers
}
