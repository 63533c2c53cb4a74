package sluice

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// BacklogError is observed when an event has been in flight for longer than
// [AtLeastOnceConfig].MaxAge.
type BacklogError struct {
	Partition string
	Sequence  int64
	Age       time.Duration
	InFlight  int // events of the partition
}

func (e *BacklogError) Error() string {
	return fmt.Sprintf("partition %s: event %d has been in flight for %v (and %d events with it): look why the store does not take it",
		e.Partition, e.Sequence, e.Age.Round(time.Second), e.InFlight)
}

// clerk keeps a stream's checkpoint and dead letters, on a goroutine of its
// own, so that a slow store of either does not hold up the events.
type clerk[R any] struct {
	stream *stream[R]

	// The stream's mu guards these.
	written  int                    // records, since last told
	cost     float64                // of all attempts, since last told
	waited   time.Duration          // for limiters, since last told
	waiting  bool                   // for the rate, now
	since    time.Duration          // when that began, or was last told, by Clock.Elapsed
	failed   []*flight              // to be stored as dead letters
	failing  map[string]int         // their partition keys, and of those that will come, under KeyHold
	held     map[string]bool        // partition keys of those that are stored, under KeyHold
	due      []*DeadLetter          // to be tried again, for the stream
	taken    map[int64]bool         // ids of those under way again
	settled  []*flight              // applied again
	returned []*DeadLetter          // failed again
	parked   []int64                // all events of this incarnation that are dead letters, ascending
	prior    []driver.SequenceRange // done by an earlier tenure

	// Its own goroutine's, and after that the stream's.
	at       Position               // the checkpoint
	done     []driver.SequenceRange // behind it, as stored
	passed   uint64                 // events below it since the stream began
	next     time.Duration          // checkpoint due, by Clock.Elapsed
	look     time.Duration          // retries to be looked for, likewise
	aged     int64                  // the event that was last told to be old
	inFlight int                    // when last told

	applied, failedAgain int // retries that have come to an end
}

// redriveMost is how many retries are under way at a time.
const redriveMost = redrivePage

// begin is told the checkpoint that the stream begins with.
func (c *clerk[R]) begin(at Position) {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, c.at, c.aged = at.Sequence, at, driver.Unset.Sequence
}

// know is told which events are dead letters when the stream begins, and which
// are done.
func (c *clerk[R]) know(parked []int64, prior []driver.SequenceRange, at Position) {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.parked, c.prior = parked, prior
	c.stream.mark.Store(newWaterMark(at.Sequence, parked))
}

// work sees to everything in turn until ctx ends.
func (c *clerk[R]) work(ctx context.Context) {
	s := c.stream
	cfg := &s.c.cfg
	tick := min(s.cfg.CheckpointEvery, cfg.RedriveEvery, time.Second)
	c.next = cfg.Clock.Elapsed() + s.cfg.CheckpointEvery
	for cfg.Clock.Sleep(ctx, tick) == nil {
		c.store(ctx)
		c.settle(ctx)
		if now := cfg.Clock.Elapsed(); now >= c.next {
			c.next = now + s.cfg.CheckpointEvery
			c.checkpoint(ctx)
		}
		c.tell()
		c.watchAge()
		if now := cfg.Clock.Elapsed(); now >= c.look {
			c.look = now + cfg.RedriveEvery
			c.lookForRetries(ctx)
		}
	}
}

// close stores what is left to be stored.
func (c *clerk[R]) close(ctx context.Context) {
	c.store(ctx)
	c.settle(ctx)
	c.checkpoint(ctx)
	c.tell()
}

// expect is told of a flight that has failed, before another of its key can go.
func (c *clerk[R]) expect(f *flight) {
	if c.stream.cfg.OnDeadLetter != KeyHold || f.letter != nil {
		return
	}
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.failing[f.event.Key]++
}

// holds tells whether a partition key is held back.
func (c *clerk[R]) holds(key string) bool {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	return c.held[key] || c.failing[key] > 0
}

// hold replaces the keys of the dead letters that are stored.
func (c *clerk[R]) hold(keys []string) {
	held := make(map[string]bool, len(keys))
	for _, k := range keys {
		held[k] = true
	}
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.held = held
}

// park takes a flight that has failed, and is over.
func (c *clerk[R]) park(f *flight) {
	s := c.stream
	if f.letter != nil {
		c.giveBack(f.letter, f.failure)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.failed = append(c.failed, f)
}

// redriven takes a retry that was applied.
func (c *clerk[R]) redriven(f *flight) {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.settled = append(c.settled, f)
}

// giveBack takes a retry that has failed.
func (c *clerk[R]) giveBack(d *DeadLetter, failure error) {
	d.Status, d.NextAttempt = StatusDead, time.Time{}
	d.Attempts++
	d.Error, d.FailedAt = describe(failure), c.stream.c.cfg.Clock.Wall().UTC()
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.returned = append(c.returned, d)
}

// take tells whether a retry is to be put on its way: it is not on it.
func (c *clerk[R]) take(id int64) bool {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	if c.taken[id] {
		return false
	}
	c.taken[id] = true
	return true
}

// forget lets a retry be taken again.
func (c *clerk[R]) forget(id int64) {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	delete(c.taken, id)
}

// retries gives the stream those that were found due.
func (c *clerk[R]) retries() []*DeadLetter {
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	due := c.due
	c.due = nil
	return due
}

// request bounds one request to a store, well within the lease.
func (c *clerk[R]) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.stream.c.cfg.LeaseFor/3)
}

// storeMost is how many dead letters are stored at a time.
const storeMost = 1000

// store stores dead letters, so that the checkpoint may pass their events.
func (c *clerk[R]) store(ctx context.Context) {
	s := c.stream
	for {
		s.mu.Lock()
		flights := c.failed[:min(storeMost, len(c.failed))]
		s.mu.Unlock()
		if len(flights) == 0 {
			return
		}
		letters := make([]DeadLetter, len(flights))
		for i, f := range flights {
			letters[i] = s.letter(f.event, f.failure, f.attempts)
		}
		rctx, cancel := c.request(ctx)
		err := s.store.Park(rctx, letters)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				s.failed(fmt.Errorf("store dead letters: %w", err))
			}
			return
		}
		s.mu.Lock()
		c.failed = c.failed[len(flights):]
		if len(c.failed) == 0 {
			c.failed = nil
		}
		for _, f := range flights {
			if i, found := slices.BinarySearch(c.parked, f.event.Sequence); !found {
				c.parked = slices.Insert(c.parked, i, f.event.Sequence)
			}
			if s.cfg.OnDeadLetter == KeyHold {
				key := f.event.Key
				c.held[key] = true
				if c.failing[key]--; c.failing[key] == 0 {
					delete(c.failing, key)
				}
			}
		}
		s.mu.Unlock()
		for _, f := range flights {
			s.complete(f)
			s.observe(Observation{Kind: KindParked, To: f.event.Position(), Attempt: f.attempts, Err: f.failure})
		}
		wake(s.news) // there is room
	}
}

// settle tells the store what became of retries. While a command redrives, the
// stream calls it too.
func (c *clerk[R]) settle(ctx context.Context) {
	s := c.stream
	s.mu.Lock()
	settled, returned := c.settled, c.returned
	c.settled, c.returned = nil, nil
	s.mu.Unlock()
	if len(settled)+len(returned) == 0 {
		return
	}
	ids, letters := make([]int64, len(settled)), make([]DeadLetter, len(returned))
	for i, f := range settled {
		ids[i] = f.letter.ID
	}
	for i, d := range returned {
		letters[i] = *d
	}
	rctx, cancel := c.request(ctx)
	defer cancel()
	if err := s.store.Settle(rctx, s.topic.Group, ids, letters); err != nil {
		s.mu.Lock()
		c.settled, c.returned = append(settled, c.settled...), append(returned, c.returned...)
		s.mu.Unlock()
		if ctx.Err() == nil {
			s.failed(fmt.Errorf("settle retries: %w", err))
		}
		return
	}
	s.mu.Lock()
	for _, f := range settled {
		delete(c.taken, f.letter.ID)
		if i, found := slices.BinarySearch(c.parked, f.event.Sequence); found && f.letter.Incarnation == s.incarnation {
			c.parked = slices.Delete(c.parked, i, i+1)
		}
	}
	for _, d := range returned {
		delete(c.taken, d.ID)
	}
	c.applied += len(settled)
	c.failedAgain += len(returned)
	s.mu.Unlock()
	for _, f := range settled {
		s.observe(Observation{Kind: KindRedriven, To: f.event.Position(), Events: 1})
	}
	for _, d := range returned {
		s.observe(Observation{Kind: KindRedriveFailed, To: d.Event.Position(), Attempt: d.Attempts, Err: errors.New(d.Error)})
	}
}

// lookForRetries finds dead letters whose retry is due, and the keys that are
// still held back.
func (c *clerk[R]) lookForRetries(ctx context.Context) {
	s := c.stream
	rctx, cancel := c.request(ctx)
	defer cancel()
	s.mu.Lock()
	holding, underWay := len(c.held) > 0, len(c.taken)
	s.mu.Unlock()
	if underWay >= redriveMost {
		return
	}
	letters, err := s.store.Due(rctx, s.topic.Group, s.lease.Partition, redriveMost)
	if err == nil && holding {
		var keys []string
		if keys, err = s.store.Held(rctx, s.topic.Group, s.lease.Partition); err == nil {
			c.hold(keys)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.failed(fmt.Errorf("look for retries: %w", err))
		}
		return
	}
	s.mu.Lock()
	c.due = nil
	for i := range letters {
		if !c.taken[letters[i].ID] {
			c.due = append(c.due, &letters[i])
		}
	}
	found := len(c.due) > 0
	s.mu.Unlock()
	if found {
		wake(s.news)
	}
}

// mostRanges bounds what is kept of completions behind the checkpoint.
const mostRanges = 10_000

// checkpoint moves the checkpoint to where all before it is done.
func (c *clerk[R]) checkpoint(ctx context.Context) {
	s := c.stream
	s.mu.Lock()
	low, passed := s.list.Low()
	at := c.at
	to := at
	if passed > 0 {
		to = low.Position
	}
	var done []driver.SequenceRange
	for first, last := range s.list.Above() {
		if len(done) == mostRanges {
			break
		}
		done = append(done, driver.SequenceRange{First: first.Sequence, Last: last.Sequence})
	}
	done = c.withPrior(done, to.Sequence, max(s.head, to.Sequence))
	s.mu.Unlock()
	if to == at && slices.Equal(done, c.done) || to == driver.Unset {
		return
	}
	rctx, cancel := c.request(ctx)
	defer cancel()
	began := s.c.cfg.Clock.Elapsed()
	err := s.store.Advance(rctx, s.lease, to, done)
	switch {
	case err == nil:
		o := Observation{
			Kind: KindCommitted, From: c.at, To: to, Events: int(passed - c.passed),
			Duration: s.c.cfg.Clock.Elapsed() - began, Lag: s.behind(to),
		}
		c.at, c.done, c.passed = to, done, passed
		s.mu.Lock()
		s.mark.Store(newWaterMark(to.Sequence, c.parked))
		s.mu.Unlock()
		s.observe(o)
	case errors.Is(err, ErrFenced):
		s.observe(Observation{Kind: KindFenced, From: c.at, To: to, Err: err})
		s.cancel(fmt.Errorf("advance checkpoint: %w", err))
	case ctx.Err() == nil:
		s.failed(fmt.Errorf("advance checkpoint: %w", err))
	}
}

// withPrior adds what an earlier tenure has done beyond head, where this one
// has not come to yet. The stream's mu is held.
func (c *clerk[R]) withPrior(done []driver.SequenceRange, to, head int64) []driver.SequenceRange {
	for len(c.prior) > 0 && c.prior[0].Last <= head {
		c.prior = c.prior[1:]
	}
	for _, r := range c.prior {
		r.First = max(r.First, head+1)
		if n := len(done); n > 0 && done[n-1].Last+1 >= r.First {
			done[n-1].Last = max(done[n-1].Last, r.Last)
			continue
		}
		if r.First == to+1 {
			r.First++ // the checkpoint will be there soon enough
		}
		if r.First <= r.Last {
			done = append(done, r)
		}
	}
	return done[:min(len(done), mostRanges)]
}

// waits is told when the stream begins to wait for its rate, and when it goes on.
func (c *clerk[R]) waits(begins bool) {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.cfg.Clock.Elapsed()
	if !begins {
		c.waited += now - c.since
	}
	c.waiting, c.since = begins, now
}

// tell tells how far the stream has come.
func (c *clerk[R]) tell() {
	s := c.stream
	s.mu.Lock()
	written, cost, waited := c.written, c.cost, c.waited
	c.written, c.cost, c.waited = 0, 0, 0
	if c.waiting {
		now := s.c.cfg.Clock.Elapsed()
		waited, c.since = waited+now-c.since, now
	}
	at := c.at
	if low, n := s.list.Low(); n > 0 {
		at = low.Position
	}
	s.mu.Unlock()
	inFlight := s.list.InFlight()
	if written == 0 && cost == 0 && waited == 0 && inFlight == 0 && c.inFlight == 0 {
		return
	}
	c.inFlight = inFlight
	s.observe(Observation{Kind: KindWritten, To: at, Events: written, Cost: cost, Waited: waited, InFlight: inFlight, Lag: s.behind(at)})
}

// watchAge tells of an event that does not get done.
func (c *clerk[R]) watchAge() {
	s := c.stream
	s.mu.Lock()
	oldest, ok := s.list.Oldest()
	s.mu.Unlock()
	age := s.c.cfg.Clock.Elapsed() - oldest.at
	if !ok || age <= s.cfg.MaxAge || oldest.Sequence == c.aged {
		return
	}
	c.aged = oldest.Sequence
	err := &BacklogError{Partition: s.lease.Partition, Sequence: oldest.Sequence, Age: age, InFlight: s.list.InFlight()}
	s.failed(err)
	if s.cfg.AgeFatal {
		s.c.fail(err)
	}
}
