package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// DeadLetterQueueHarness is what [TestDeadLetterQueue] works on: a queue without dead letters.
type DeadLetterQueueHarness struct {
	Store       driver.DeadLetterQueue
	DeadLetters driver.DeadLetterStore // over the same dead letters
	// Peer is another store over the same dead letters, as another process has it.
	// Nil: Store itself.
	Peer driver.DeadLetterQueue

	// Silence makes the store's server silent. Nil leaves the case out.
	Silence Silence
	// LoseAnswer lets the server make the next change of Store, but loses its answer. Nil:
	// the suite makes the change twice.
	LoseAnswer func(t testing.TB)
}

func (h *DeadLetterQueueHarness) peer() driver.DeadLetterQueue {
	if h.Peer != nil {
		return h.Peer
	}
	return h.Store
}

// park stores dead letters and returns all of testGroup's as they are then
// listed, by sequence number.
func (h *DeadLetterQueueHarness) park(t testing.TB, deadLetters ...driver.DeadLetter) map[int64]driver.DeadLetter {
	t.Helper()
	suite.NoError(t, "park", h.Store.Park(suite.Context(t), deadLetters))
	return h.deadLetters(t)
}

// deadLetters lists the group's dead letters by sequence number.
func (h *DeadLetterQueueHarness) deadLetters(t testing.TB) map[int64]driver.DeadLetter {
	t.Helper()
	return listDeadLetters(t, h.DeadLetters)
}

// get reads a dead letter with its body.
func (h *DeadLetterQueueHarness) get(t testing.TB, id int64) driver.DeadLetter {
	t.Helper()
	l, err := h.DeadLetters.Get(suite.Context(t), testGroup, id)
	suite.NoError(t, fmt.Sprintf("get dead letter %d", id), err)
	return l
}

// redrive marks dead letters for a redrive now.
func (h *DeadLetterQueueHarness) redrive(t testing.TB, ids ...int64) {
	t.Helper()
	h.redriveAt(t, time.Time{}, ids...)
}

func (h *DeadLetterQueueHarness) redriveAt(t testing.TB, at time.Time, ids ...int64) {
	t.Helper()
	n, err := h.DeadLetters.Redrive(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: ids}, at)
	suite.NoError(t, "redrive", err)
	if n != int64(len(ids)) {
		t.Errorf("redrive of %d dead letters marked %d", len(ids), n)
	}
}

func (h *DeadLetterQueueHarness) discard(t testing.TB, ids ...int64) {
	t.Helper()
	_, err := h.DeadLetters.Discard(suite.Context(t), testGroup, driver.DeadLetterFilter{IDs: ids})
	suite.NoError(t, "discard", err)
}

// due returns the sequence numbers of what is due in partition 0, having seen
// that it is whole.
func (h *DeadLetterQueueHarness) due(t testing.TB, limit int) []int64 {
	t.Helper()
	return listDue(t, h.Store, limit)
}

// settle ends retries of testGroup.
func (h *DeadLetterQueueHarness) settle(t testing.TB, applied []int64, returned ...driver.DeadLetter) {
	t.Helper()
	suite.NoError(t, "settle", h.Store.Settle(suite.Context(t), testGroup, applied, returned))
}

// deadLetterWithKey is a parked dead letter with a partition key.
func deadLetterWithKey(partition string, sequence int64, key string) driver.DeadLetter {
	l := deadLetterOf(partition, sequence)
	l.Event.Key = key
	return l
}
