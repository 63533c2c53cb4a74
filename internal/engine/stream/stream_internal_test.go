package stream

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// advances counts the checkpoints that are stored.
type advances struct {
	driver.AtLeastOnceStore
	n int
}

func (s *advances) Advance(context.Context, driver.Lease, string, driver.Position, []driver.SequenceRange) error {
	s.n++
	return nil
}

// The background goroutine runs beside the claim. A checkpoint without a position is never
// stored, also if there is something to store behind it: it could pass an event.
func TestNoCheckpointBeforeTheClaim(t *testing.T) {
	store := new(advances)
	a := &partition.Assignment{Settings: &engine.Settings{Clock: clock.New(), LeaseFor: time.Minute}, Topic: driver.Topic{Partitions: []string{"0"}}}
	w := (&delivery[int]{stored: store, cfg: &Config{MaxEvents: 1, MaxBytes: 1}, window: newSinkWindow(1)}).newWorker(a)
	w.checkpoints.setEarlier([]driver.SequenceRange{{First: 5, Last: 7}})
	if w.storeCheckpoint(t.Context()); store.n != 0 {
		t.Errorf("%d checkpoints stored before the claim", store.n)
	}
	w.startAt(driver.Origin)
	if w.storeCheckpoint(t.Context()); store.n != 1 {
		t.Errorf("%d checkpoints stored after the claim, want 1: what an earlier assignment has done", store.n)
	}
}

// TestRedriveThatIsPutBackStaysHeld: a redrive that cannot be started while a look is under way
// that found nothing else does not lose the hold of an earlier dead letter of its key.
func TestRedriveThatIsPutBackStaysHeld(t *testing.T) {
	var q redriveQueue
	q.init()
	due := []driver.DeadLetter{{ID: 2, Incarnation: "1", Event: driver.Event{Sequence: 2, Key: "a"}}}
	if ids := q.ids(due); len(ids) != 1 {
		t.Fatalf("the store is asked about the keys without %v, want one redrive", ids)
	}
	q.found(due, 100, []driver.HeldKey{{Key: "a", Incarnation: "1", First: 1}}, true, 0)
	d := q.next()
	if ids := q.ids(due); ids != nil {
		t.Fatalf("all that are due were started, but the store is asked about the keys without %v", ids)
	}
	q.putBack(d)
	q.found(due, 100, nil, false, 0)
	if first, held := q.heldBy(q.next()); !held || first != 1 {
		t.Errorf("held %t by event %d, want by event 1", held, first)
	}
}
