package sluicetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// LetterHarness is what [TestLetterStore] works on: an empty store of dead
// letters.
type LetterHarness struct {
	Store       driver.DeadLetterQueue
	DeadLetters driver.DeadLetterStore // over the same letters
	// Peer is another store over the same letters, as another process has it.
	// Nil: Store itself.
	Peer driver.DeadLetterQueue
}

func (h *LetterHarness) peer() driver.DeadLetterQueue {
	if h.Peer != nil {
		return h.Peer
	}
	return h.Store
}

// park stores dead letters and returns all of testGroup's as they are then
// listed, by sequence number.
func (h *LetterHarness) park(t testing.TB, letters ...sluice.DeadLetter) map[int64]sluice.DeadLetter {
	t.Helper()
	ok(t, "park", h.Store.Park(limited(t), letters))
	return h.letters(t)
}

// letters lists the group's dead letters by sequence number.
func (h *LetterHarness) letters(t testing.TB) map[int64]sluice.DeadLetter {
	t.Helper()
	return lettersOf(t, h.DeadLetters)
}

// get reads a dead letter with its body.
func (h *LetterHarness) get(t testing.TB, id int64) sluice.DeadLetter {
	t.Helper()
	l, err := h.DeadLetters.Get(limited(t), testGroup, id)
	ok(t, fmt.Sprintf("get dead letter %d", id), err)
	return l
}

// retry marks dead letters for a retry now.
func (h *LetterHarness) retry(t testing.TB, ids ...int64) {
	t.Helper()
	h.retryAt(t, time.Time{}, ids...)
}

func (h *LetterHarness) retryAt(t testing.TB, at time.Time, ids ...int64) {
	t.Helper()
	n, err := h.DeadLetters.Redrive(limited(t), testGroup, sluice.DeadLetterFilter{IDs: ids}, at)
	ok(t, "retry", err)
	if n != int64(len(ids)) {
		t.Errorf("retry of %d dead letters marked %d", len(ids), n)
	}
}

func (h *LetterHarness) discard(t testing.TB, ids ...int64) {
	t.Helper()
	_, err := h.DeadLetters.Discard(limited(t), testGroup, sluice.DeadLetterFilter{IDs: ids})
	ok(t, "discard", err)
}

// due returns the sequence numbers of what is due in partition 0, having seen
// that it is whole.
func (h *LetterHarness) due(t testing.TB, limit int) []int64 {
	t.Helper()
	return dueOf(t, h.Store, limit)
}

// settle ends retries of testGroup.
func (h *LetterHarness) settle(t testing.TB, applied []int64, returned ...sluice.DeadLetter) {
	t.Helper()
	ok(t, "settle", h.Store.Settle(limited(t), testGroup, applied, returned))
}

// keyed is a parked dead letter with a partition key.
func keyed(partition string, sequence int64, key string) sluice.DeadLetter {
	l := parked(partition, sequence)
	l.Event.Key = key
	return l
}
