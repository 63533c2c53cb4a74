package sluice

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// flight is an event on its way, until each of its records has come to its end.
type flight struct {
	event  *Event
	slot   uint64      // on the work list
	letter *DeadLetter // on retry; it is on no work list
	left   atomic.Int32
	// failed is set before the last record comes to its end, failure and
	// attempts before it.
	failed   atomic.Bool
	failure  error
	attempts int
}

// item is a record of a flight, or, before its records are made, the flight.
type item[R any] struct {
	stream   *stream[R]
	flight   *flight
	record   R
	made     bool   // record is one
	lane     string // of its key
	laned    bool   // it has one
	attempts int    // that failed and count
	probe    bool   // sent to see whether an outage is over
	result   WriteResult
	due      time.Duration // by Clock.Elapsed, while it waits for another attempt
	behind   *item[R]      // waits for it, in its lane
}

// queues are what the stream's goroutine has still to submit.
type queues[R any] struct {
	again   []*item[R] // first: they were begun before
	fresh   []*item[R]
	lanes   map[string]*item[R] // the last of those with a key that are not done
	later   retryHeap[R]
	waiting int // items in lanes behind others
}

func (q *queues[R]) init() { q.lanes = map[string]*item[R]{} }

// idleQueues tells whether all that was taken has been submitted, or waits for
// something in particular.
func (q *queues[R]) idleQueues() bool { return len(q.again)+len(q.fresh) == 0 }

// busy tells whether anything is on its way.
func (s *stream[R]) busy() bool {
	return !s.idleQueues() || len(s.later) > 0 || s.waiting > 0 || s.flying.Load() > 0 || s.hasLanded()
}

// enter makes a flight's records and queues them.
func (s *stream[R]) enter(f *flight) {
	var records []R
	ctx := s.recording(f)
	err := guard(func() (err error) { records, err = s.records(ctx, f.event); return err })
	if err != nil {
		f.left.Store(1)
		it := &item[R]{stream: s, flight: f}
		var again *RetryError
		if !errors.Is(err, ErrOutage) && !errors.As(err, &again) {
			err = Reject(fmt.Errorf("make records: %w", err))
		}
		s.fail(it, err)
		return
	}
	f.left.Store(int32(len(records)))
	if len(records) == 0 {
		s.complete(f)
		return
	}
	items := make([]item[R], len(records))
	for i, r := range records {
		items[i] = item[R]{stream: s, flight: f, record: r, made: true}
		s.queue(&items[i])
	}
}

// recording is the context of a flight's records.
func (s *stream[R]) recording(f *flight) context.Context {
	if f.letter == nil {
		return s.making
	}
	// It may be of an earlier incarnation of the topic.
	return context.WithValue(s.making, emissionKey{}, &emission{
		FencingToken: FencingTokenOf(s.making), source: sourceOf(s.topic.Group, f.letter.Incarnation), mark: &s.mark, retry: true,
	})
}

// queue puts a record in its lane, and on the way if that is free.
func (s *stream[R]) queue(it *item[R]) {
	switch s.cfg.Order {
	case OrderKey:
		it.lane = it.flight.event.Key
		if s.cfg.Key != nil {
			it.lane = s.cfg.Key(it.record)
		}
		it.laned = it.lane != ""
	case OrderPartition:
		it.laned = true
	}
	if it.laned {
		last := s.lanes[it.lane]
		s.lanes[it.lane] = it
		if last != nil {
			last.behind = it
			s.waiting++
			return
		}
	}
	s.fresh = append(s.fresh, it)
}

// leaveLane lets the next record of the key go.
func (s *stream[R]) leaveLane(it *item[R]) {
	if !it.laned {
		return
	}
	it.laned = false
	if it.behind == nil {
		delete(s.lanes, it.lane)
		return
	}
	s.waiting--
	s.again = append(s.again, it.behind)
	it.behind = nil
}

// mayGo tells whether there is something to submit, and nothing against it.
func (s *stream[R]) mayGo() bool {
	return !s.idleQueues() && s.gate.open(s.c.cfg.Clock.Elapsed())
}

// submitMost is how many records are submitted before the stream looks up.
const submitMost = 256

// submit hands records to the sink, as many as the rate allows.
func (s *stream[R]) submit() error {
	n := min(len(s.again)+len(s.fresh), submitMost)
	if s.gate.closed {
		n = 1 // to see whether the outage is over
	}
	if s.cfg.Rate != nil {
		var err error
		s.clerk.waits(true)
		n, err = s.cfg.Rate.wait(s.idle, s.c.cfg.Clock, n)
		s.clerk.waits(false)
		if err != nil {
			return s.ended()
		}
	}
	for ; n > 0 && !s.idleQueues(); n-- {
		var it *item[R]
		if len(s.again) > 0 {
			it, s.again = s.again[0], s.again[1:]
		} else {
			it, s.fresh = s.fresh[0], s.fresh[1:]
		}
		switch {
		case !it.made:
			s.enter(it.flight)
		case it.flight.failed.Load():
			s.finish(it) // for another record of the event has failed
		case s.holds(it.flight):
			s.give(it, fmt.Errorf("held back: an earlier event of key %q is a dead letter", it.flight.event.Key), 0)
		default:
			if s.gate.closed {
				s.gate.probing, it.probe = true, true
			}
			s.flying.Add(1)
			s.sink.Submit(s.recording(it.flight), it.record, it.done)
		}
	}
	if len(s.again) == 0 {
		s.again = nil
	}
	if len(s.fresh) == 0 {
		s.fresh = nil
	}
	return nil
}

// done takes a record's result, on a goroutine of the sink's.
func (it *item[R]) done(r WriteResult) {
	s := it.stream
	it.result = r
	over := r.Err == nil
	if over && it.flight.left.Add(-1) == 0 {
		s.end(it.flight)
	}
	s.mu.Lock()
	s.clerk.cost += r.Cost
	s.clerk.waited += r.Waited
	if over {
		s.clerk.written++
	}
	if !over || it.laned || it.probe {
		s.landed = append(s.landed, it)
	}
	s.mu.Unlock()
	s.flying.Add(-1)
	wake(s.news)
}

// hasLanded tells whether there are results to see.
func (s *stream[R]) hasLanded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.landed) > 0
}

// absorb sees to the results that have come, and to the retries that are due.
func (s *stream[R]) absorb() {
	s.mu.Lock()
	landed := s.landed
	s.landed = nil
	s.mu.Unlock()
	for _, it := range landed {
		if it.probe {
			it.probe, s.gate.probing = false, false
			if it.result.Err == nil {
				s.gate.reopen()
			}
		}
		if it.result.Err == nil {
			s.leaveLane(it)
		} else {
			s.fail(it, it.result.Err)
		}
	}
	now := s.c.cfg.Clock.Elapsed()
	for len(s.later) > 0 && s.later[0].due <= now {
		s.again = append(s.again, heap.Pop(&s.later).(*item[R]))
	}
	s.setAlarm()
}

// fail decides what becomes of a record that was not written.
func (s *stream[R]) fail(it *item[R], err error) {
	var again *RetryError
	switch {
	case s.work.Err() != nil:
		// Nobody can tell any more whose fault it was.
	case errors.As(err, &again):
		wait := again.After
		if wait <= 0 {
			wait = s.cfg.RetryAfter
		}
		s.retry(it, wait, err)
	case errors.Is(err, ErrOutage):
		if s.gate.close(s.c.cfg.Clock.Elapsed()) {
			s.failed(err)
		}
		s.again = append(s.again, it) // it keeps its lane, so the order is kept
	case errors.Is(err, ErrRejected), it.flight.letter != nil, it.attempts+1 >= s.c.cfg.Attempts:
		s.give(it, err, it.attempts+1)
	default:
		it.attempts++
		wait := s.c.backoff(s.rand)
		var d time.Duration
		for range it.attempts {
			d = wait.next()
		}
		s.retry(it, d, err)
	}
}

func (s *stream[R]) retry(it *item[R], wait time.Duration, err error) {
	s.observe(Observation{Kind: KindRetried, To: it.flight.event.Position(), Attempt: it.attempts, Err: err})
	it.due = s.c.cfg.Clock.Elapsed() + wait
	heap.Push(&s.later, it)
}

// give gives an event up for one of its records.
func (s *stream[R]) give(it *item[R], err error, attempts int) {
	f := it.flight
	if !f.failed.Load() {
		f.failure, f.attempts = err, attempts
		s.clerk.expect(f)
		f.failed.Store(true)
	}
	s.finish(it)
}

// finish ends a record that is not written and never will be.
func (s *stream[R]) finish(it *item[R]) {
	s.leaveLane(it)
	if it.flight.left.Add(-1) == 0 {
		s.end(it.flight)
	}
}

// end is the end of a flight's last record, on any goroutine.
func (s *stream[R]) end(f *flight) {
	if f.failed.Load() {
		s.clerk.park(f)
	} else {
		s.complete(f)
	}
}

// complete is the end of a flight that is done.
func (s *stream[R]) complete(f *flight) {
	if f.letter != nil {
		s.clerk.redriven(f)
		return
	}
	s.weight.Add(-int64(len(f.event.Body)))
	s.list.Done(f.slot)
}

// holds tells whether a flight's key is held back by a dead letter.
func (s *stream[R]) holds(f *flight) bool {
	return s.cfg.OnDeadLetter == KeyHold && f.letter == nil && f.event.Key != "" && s.clerk.holds(f.event.Key)
}

// gate keeps records back while the store, or the way to it, is down.
type gate struct {
	closed  bool
	probing bool // one record is out to see
	until   time.Duration
	since   time.Duration // of the outage
	wait    *backoff
}

// open tells whether a record may pass: all, or one that sees whether the
// outage is over.
func (g *gate) open(now time.Duration) bool { return !g.closed || !g.probing && now >= g.until }

// close begins an outage, or prolongs it, and tells whether that is news: what
// was sent before the gate closed comes back in a swarm.
func (g *gate) close(now time.Duration) bool {
	if g.closed && now < g.until {
		return false
	}
	if !g.closed && now-g.since > 2*g.wait.Max {
		g.wait.reset() // the last one is long ago
	}
	g.closed, g.since = true, now
	g.until = now + g.wait.next()
	return true
}

func (g *gate) reopen() { g.closed = false }

const never = time.Duration(math.MaxInt64)

// setAlarm notes when the stream wants to be woken.
func (s *stream[R]) setAlarm() {
	at := never
	if len(s.later) > 0 {
		at = s.later[0].due
	}
	if s.landing {
		at = never // nothing is sent any more
	} else if s.gate.closed && !s.gate.probing && !s.idleQueues() {
		at = min(at, s.gate.until)
	}
	s.mu.Lock()
	sooner := at < s.alarmAt
	s.alarmAt = at
	s.mu.Unlock()
	if sooner {
		wake(s.alarmSet)
	}
}

// alarmTick is how late the alarm may ring where it was set for later before.
const alarmTick = 20 * time.Millisecond

// ringAlarm wakes the stream at the times it has set.
func (s *stream[R]) ringAlarm(ctx context.Context) {
	for {
		s.mu.Lock()
		at := s.alarmAt
		s.mu.Unlock()
		if at == never {
			select {
			case <-s.alarmSet:
				continue
			case <-ctx.Done():
				return
			}
		}
		left := at - s.c.cfg.Clock.Elapsed()
		if left <= 0 {
			s.mu.Lock()
			if s.alarmAt == at {
				s.alarmAt = never
			}
			s.mu.Unlock()
			wake(s.news)
			continue
		}
		if s.c.cfg.Clock.Sleep(ctx, min(left, alarmTick)) != nil {
			return
		}
	}
}

// retryHeap has the record that is due next on top.
type retryHeap[R any] []*item[R]

func (h retryHeap[R]) Len() int           { return len(h) }
func (h retryHeap[R]) Less(i, j int) bool { return h[i].due < h[j].due }
func (h retryHeap[R]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *retryHeap[R]) Push(x any) { *h = append(*h, x.(*item[R])) }

// Pop is heap.Interface's.
func (h *retryHeap[R]) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
