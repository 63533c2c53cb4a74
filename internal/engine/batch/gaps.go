package batch

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// In a topic that is Sparse, numbers without an event follow events, and may be the last ones of
// the partition. The checkpoint passes those before an event with the event. Those after the last
// event it passes too, so that nothing is left to do: in the transaction of that event if they were
// read with it, otherwise in one of their own.

// passEvery is the least time between two transactions that only move the checkpoint over numbers
// without an event, and about the longest that such numbers wait.
const passEvery = time.Second

// upTo returns the position after an event and what follows it without an event to handle:
// duplicates, and numbers without an event if they are the last that was read.
func (w *worker[Tx]) upTo(e *driver.Event) driver.Position {
	to := w.dedup.After(e)
	if to.Sequence == w.taken && w.tail.Sequence > to.Sequence {
		return w.tail
	}
	return to
}

// pass moves the checkpoint over numbers without an event, but not while attempts at a later event
// are on record: moving the checkpoint clears the record.
func (w *worker[Tx]) pass(to driver.Position) error {
	if to == driver.Unset || w.attemptsOnRecord() && w.record.known.Sequence > to.Sequence {
		return nil
	}
	return w.skip(to)
}

// setLostAside sets the dead letters aside whose events the log has lost, if others with their
// numbers are to be applied after a checkpoint that was set back.
func (w *worker[Tx]) setLostAside(events []*driver.Event) error {
	if !w.parkedLoaded {
		err := w.a.Request(w.a.Work, "look for dead letters", func(ctx context.Context) (err error) {
			w.parked, err = w.store.Parked(ctx, w.a.Topic.Group, w.a.Lease.Partition, w.a.Incarnation, w.pos.Sequence)
			return err
		})
		if err != nil {
			return err
		}
		w.parkedLoaded = true
	}
	lost := partition.LostAmong(w.parked, events)
	if err := w.a.SetAside(w.store, lost); err != nil {
		return err
	}
	w.parked = partition.Difference(w.parked, lost)
	return nil
}

// deliverApart applies events after a checkpoint that was set back. A step removes older dead
// letters of the numbers that it passes, because it decides about their events. Numbers whose
// events the log does not hold any more must keep theirs, so steps of their own pass these.
func (w *worker[Tx]) deliverApart(events []*driver.Event) error {
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Sequence == events[n-1].Sequence+1 {
			n++
		}
		if err := w.skip(driver.Position{Sequence: events[0].Sequence - 1}); err != nil {
			return err
		}
		if err := w.deliverRun(events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
