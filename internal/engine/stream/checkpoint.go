package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
	"github.com/sluice-go/sluice/internal/worklist"
	"github.com/sluice-go/sluice/stamp"
)

// admission is what the work list remembers of an event.
type admission struct {
	driver.Position
	submitted *atomic.Int64 // see inFlightEvent
}

// inFlightList is the work list of a partition with the lock that it needs. The
// list's Done alone needs no lock.
type inFlightList struct {
	mu     sync.Mutex
	list   *worklist.List[admission]
	sparse bool            // see driver.Topic
	start  driver.Position // all up to here is done, whatever is on the list; Unset until the claim
	newest int64           // sequence number of the newest event on the list
	tail   driver.Position // numbers without an event were read up to here, after that event; Unset: none were
}

func (l *inFlightList) init(events int, sparse bool) {
	l.list, l.sparse = worklist.New[admission](events), sparse
	l.startAt(driver.Unset)
}

// startAt sets the position after which events are added.
func (l *inFlightList) startAt(at driver.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start, l.newest, l.tail = at, at.Sequence, driver.Unset
}

// pass notes that numbers without an event were read after the newest event.
func (l *inFlightList) pass(to driver.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest, l.tail = to.Sequence, to
}

// add puts events on the list, for which there must be room, and sets the in-flight
// events to them and their slots.
func (l *inFlightList) add(events []*driver.Event, admitted []inFlightEvent) {
	submitted := make([]atomic.Int64, len(events)) // outlives the events until all are done
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range events {
		admitted[i].event, admitted[i].submitted = e, &submitted[i]
		admitted[i].slot, _ = l.list.Arrive(admission{e.Position(), &submitted[i]})
	}
	l.newest, l.tail = events[len(events)-1].Sequence, driver.Unset
}

// low returns the furthest event up to which all are done, and how many those are.
func (l *inFlightList) low() (driver.Position, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, n := l.list.Low()
	return at.Position, n
}

// oldest returns the oldest event that is not done.
func (l *inFlightList) oldest() (admission, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list.Oldest()
}

// maxDoneRanges bounds what is stored of events that are done after the
// checkpoint.
const maxDoneRanges = 10_000

// progress returns the furthest position up to which all is done, Unset before the claim, how many
// events that are, what is done after it, and the newest number read.
//
// In a sparse topic only what has the position's offset counts as done after it. So the next owner
// can notice that the log has lost these events and has others of their numbers.
func (l *inFlightList) progress() (low driver.Position, n uint64, behind []driver.SequenceRange, newest int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.list.Oldest()
	at, n := l.list.Low()
	if !open && l.tail != driver.Unset {
		l.start = l.tail // the next event must not take it back
	}
	low = l.start
	if n > 0 && at.Sequence > low.Sequence {
		low = at.Position
	}
	for first, last := range l.list.Runs() {
		if len(behind) == maxDoneRanges || l.sparse && last.History() != low.History() {
			break
		}
		behind = append(behind, driver.SequenceRange{First: first.Sequence, Last: last.Sequence})
	}
	return low, n, behind, l.newest
}

// checkpointer remembers what was stored of a partition's progress. The worker's
// goroutine sets the start, the background goroutine stores.
type checkpointer struct {
	mu       sync.Mutex
	position driver.Position        // the checkpoint; Unset until the claim
	earlier  []driver.SequenceRange // done by an earlier assignment

	// The background goroutine alone uses these, after it the worker's.
	done     []driver.SequenceRange // after the checkpoint, as stored
	passed   uint64                 // events below the checkpoint since the start
	stored   time.Duration          // when it was stored last, by Clock.Elapsed
	reported int64                  // the event that was last reported as too old
	unstored *partition.Span        // since the first attempt that failed; nil: none did
}

// moveTo sets the checkpoint: the start, or what was stored.
func (c *checkpointer) moveTo(at driver.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.position = at
}

func (c *checkpointer) setEarlier(done []driver.SequenceRange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.earlier = done
}

func (c *checkpointer) Position() driver.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

// withEarlier adds to done what an earlier assignment has done beyond the newest
// event of this one.
func (c *checkpointer) withEarlier(done []driver.SequenceRange, to, newest int64) []driver.SequenceRange {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.earlier) > 0 && c.earlier[0].Last <= newest {
		c.earlier = c.earlier[1:]
	}
	for _, r := range c.earlier {
		r.First = max(r.First, newest+1)
		if n := len(done); n > 0 && done[n-1].Last+1 >= r.First {
			done[n-1].Last = max(done[n-1].Last, r.Last)
			continue
		}
		if r.First == to+1 {
			r.First++ // ranges must not touch the checkpoint, which passes this event soon
		}
		if r.First <= r.Last {
			done = append(done, r)
		}
	}
	return done[:min(len(done), maxDoneRanges)]
}

// storeCheckpoint moves the stored checkpoint to where all before it is done.
func (w *worker[R]) storeCheckpoint(ctx context.Context) {
	c := &w.checkpoints
	// The progress first: if there is any, the position that it started from is set.
	to, passed, done, newest := w.inFlight.progress()
	from := c.Position()
	if to == driver.Unset {
		return
	}
	done = c.withEarlier(done, to.Sequence, max(newest, to.Sequence))
	began := w.a.Settings.Clock.Elapsed()
	unchanged := to == from && slices.Equal(done, c.done)
	if unchanged && began-c.stored < w.a.Settings.LeaseFor {
		return
	}
	// An unchanged checkpoint is stored for its fence: the owner of a partition without
	// events notices in this way that an operator has set the checkpoint.
	if c.unstored == nil {
		span := w.a.Unstored.Doing(partition.ActivityUnstored, 0, 0)
		c.unstored = &span
	}
	rctx, cancel := w.storeRequestCtx(ctx)
	defer cancel()
	err := w.store.Advance(rctx, w.a.Lease, w.a.Incarnation, to, done)
	switch {
	case err == nil:
		c.unstored.Done()
		c.unstored = nil
		c.stored = w.a.Settings.Clock.Elapsed()
		if unchanged {
			return
		}
		o := driver.Observation{
			Kind: driver.KindCommitted, From: from, To: to, Events: int(passed - c.passed),
			Duration: w.a.Settings.Clock.Elapsed() - began, Lag: w.a.Lag.Measure(to),
		}
		c.moveTo(to)
		c.done, c.passed = done, passed
		w.watermark.Store(stamp.NewWatermark(to.Sequence, w.deadLetters.all()))
		w.a.Observe(o)
	case errors.Is(err, driver.ErrFenced):
		w.a.Observe(driver.Observation{Kind: driver.KindFenced, From: from, To: to, Err: err})
		w.a.Cancel(fmt.Errorf("advance checkpoint: %w", err))
	case ctx.Err() == nil:
		w.a.Failed(fmt.Errorf("advance checkpoint: %w", err))
	}
}

// reportAge reports an event that has been in flight for too long, once.
func (w *worker[R]) reportAge() {
	oldest, ok := w.inFlight.oldest()
	if !ok || oldest.Sequence == w.checkpoints.reported {
		return
	}
	submitted := oldest.submitted.Load()
	age := w.a.Settings.Clock.Elapsed() - time.Duration(submitted)
	if submitted == 0 || age <= w.cfg.MaxAge { // what was not submitted waits for the rate or the order, not for the store
		return
	}
	w.checkpoints.reported = oldest.Sequence
	err := &driver.BacklogError{Partition: w.a.Lease.Partition, Sequence: oldest.Sequence, Age: age, InFlight: w.inFlight.list.InFlight()}
	w.a.Failed(err)
	if w.cfg.AgeFatal {
		w.a.Host.Fail(err)
	}
}
