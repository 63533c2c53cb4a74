package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/driver"
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
func (w *batchWorker[Tx]) upTo(e *Event) Position {
	to := w.dedup.After(e)
	if to.Sequence == w.taken && w.tail.Sequence > to.Sequence {
		return w.tail
	}
	return to
}

// pass moves the checkpoint over numbers without an event, but not while attempts at a later event
// are on record: moving the checkpoint clears the record.
func (w *batchWorker[Tx]) pass(to Position) error {
	if to == driver.Unset || w.attemptsOnRecord() && w.record.known.Sequence > to.Sequence {
		return nil
	}
	return w.skip(to)
}

// setLostAside sets the dead letters aside whose events the log has lost, if others with their numbers
// are to be applied after a checkpoint that was set back.
func (w *batchWorker[Tx]) setLostAside(events []*Event) error {
	if !w.parkedLoaded {
		err := w.a.request(w.a.work, "look for dead letters", func(ctx context.Context) (err error) {
			w.parked, err = w.store.Parked(ctx, w.a.topic.Group, w.a.lease.Partition, w.a.incarnation, w.pos.Sequence)
			return err
		})
		if err != nil {
			return err
		}
		w.parkedLoaded = true
	}
	lost := lostAmong(w.parked, events)
	if err := w.a.setAside(w.store, lost); err != nil {
		return err
	}
	w.parked = without(w.parked, lost)
	return nil
}

// deliverApart applies events after a checkpoint that was set back. A step removes older dead
// letters of the numbers that it passes, because it decides about their events. Numbers whose
// events the log does not hold any more must keep theirs, so steps of their own pass these.
func (w *batchWorker[Tx]) deliverApart(events []*Event) error {
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Sequence == events[n-1].Sequence+1 {
			n++
		}
		if err := w.skip(Position{Sequence: events[0].Sequence - 1}); err != nil {
			return err
		}
		if err := w.deliverRun(events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
