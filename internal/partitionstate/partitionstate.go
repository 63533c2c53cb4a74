// Package partitionstate keeps the state of a consumer's partitions, computed from
// its observations. The terminal, the dashboard, the metrics and the probes all
// show this state, so that they agree.
package partitionstate

import (
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// FailureGap is the longest time between two failures that count as one that
	// lasts. Default: 2 min.
	FailureGap time.Duration
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Tracker is a [driver.Observer] that keeps the state of one consumer. It is safe
// for concurrent use. Its memory is bounded by the number of partitions.
type Tracker struct {
	cfg   Config
	began time.Time // rates count seconds from here

	mu         sync.Mutex
	partitions map[string]*partition // that are held, were held, or failed
	counts     Totals                // without the sums over partitions
	failure    Failure
	answered   bool
}

// Partition is the state of one partition.
type Partition struct {
	// Held says that this consumer has the lease. Of a partition that it had
	// before, only Acquired, Epoch and Checkpoint are kept.
	Held     bool
	Acquired time.Time // zero: never
	Renewed  time.Time // the lease; when it was acquired, if not since
	Owner    string
	Epoch    int64

	Checkpoint driver.Position // [driver.Unset] before it is claimed
	Fetched    driver.Position // of the newest event read; likewise
	// Lag is how many events the log holds that are not done, -1 while that is
	// not known; LagAt is when an observation last reported it.
	Lag      int64
	LagAt    time.Time
	InFlight int       // events taken and not done; at least once only
	Oldest   time.Time // when the log took the oldest event that was read and is not done, or else the newest that is
	Progress time.Time // when events were last done; zero: never
	Rate     float64   // events (at least once: records) done a second, over the last five seconds

	Failure Failure // since the last event done; the zero value: none
	Stopped error   // why the partition is halted until an operator acts; nil: it is not
	Stall   Stall   // what holds the partition up; the zero value: nothing
}

// Stall is something that has lasted too long.
type Stall struct {
	Began time.Time
	Err   error // what it is, and what to look for
}

// Stalled says that there is a stall.
func (s *Stall) Stalled() bool { return s.Err != nil }

// Failure is an error that occurs again and again.
type Failure struct {
	Began, Last time.Time
	Err         error // the last one
}

// Failing says that there is a failure.
func (f *Failure) Failing() bool { return !f.Began.IsZero() }

func (f *Failure) add(err error, now time.Time, gap time.Duration) {
	if !f.Failing() || now.Sub(f.Last) > gap {
		f.Began = now
	}
	f.Last, f.Err = now, err
}

// Totals are counts since the tracker was made, and sums over the partitions that
// are held.
type Totals struct {
	Events      int64 // committed, dead letters included
	Filtered    int64 // left out by a filter
	DeadLetters int64 // parked
	Redriven    int64 // dead letters applied on redrive
	Retries     int64 // attempts that failed and were repeated

	Partitions int   // held now
	Halted     int   // of those, until an operator acts
	Stalled    int   // of those that are not halted
	Lag        int64 // -1 if it is not known of any

	// These are of the delivery at least once only.
	AtLeastOnce bool    // it is this delivery
	Written     int64   // records
	Cost        float64 // of all attempts, in the store's unit (RU)
	InFlight    int     // events taken and not done
}

// Done is how many events were committed, or how many records were written by a
// delivery at least once.
func (t *Totals) Done() int64 {
	if t.AtLeastOnce {
		return t.Written
	}
	return t.Events
}

// State is the state of a consumer.
type State struct {
	Totals
	Partitions map[string]Partition
	Failure    Failure // of no single partition
	Answered   bool    // the lease store has answered
}

// partition is a [Partition] and what its fields are computed from.
type partition struct {
	Partition
	rate rate
	// batches are those fetched and not done, oldest first.
	batches []batch
	newest  time.Time // when the log took the newest event that is done
	done    driver.Position
}

// batch is the sequence number and time of a batch's last event.
type batch struct {
	last     int64
	enqueued time.Time
}

// maxBatches bounds what is remembered of a partition. Of more batches the
// oldest count.
const maxBatches = 1024

// New makes a tracker. A nil cfg takes every default.
func New(cfg *Config) *Tracker {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.FailureGap == 0 {
		c.FailureGap = 2 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Tracker{cfg: c, began: c.Now(), partitions: map[string]*partition{}}
}

// Observe implements [driver.Observer].
func (t *Tracker) Observe(o driver.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(&o)
	now := t.cfg.Now()
	switch p := t.partitions[o.Partition]; {
	case o.Kind == driver.KindListed:
		t.answered, t.failure = true, Failure{}
	case o.Partition == "":
		if o.Kind == driver.KindFailed {
			t.failure.add(o.Err, now, t.cfg.FailureGap)
		}
	default:
		if p == nil {
			p = &partition{Partition: released(Partition{Checkpoint: driver.Unset})}
			switch o.Kind {
			case driver.KindAcquired, driver.KindFailed, driver.KindHalted, driver.KindStalled:
				t.partitions[strings.Clone(o.Partition)] = p
			}
		}
		t.ownership(p, &o, now)
		t.health(p, &o, now)
		if p.Held { // another owner knows better how far its partition is
			t.progress(p, &o, now)
		}
	}
}

// count adds to the totals.
func (t *Tracker) count(o *driver.Observation) {
	c := &t.counts
	switch o.Kind {
	case driver.KindCommitted:
		c.Events += int64(o.Events)
		c.Filtered += int64(o.Filtered)
	case driver.KindWritten:
		c.AtLeastOnce = true
		c.Filtered += int64(o.Filtered)
		c.Written += int64(o.Events)
		c.Cost += o.Cost
	case driver.KindRetried:
		c.Retries++
	case driver.KindParked:
		c.DeadLetters++
	case driver.KindRedriven:
		c.Redriven++
	}
}

// ownership follows the lease.
func (t *Tracker) ownership(p *partition, o *driver.Observation, now time.Time) {
	switch o.Kind {
	case driver.KindAcquired:
		t.answered = true
		*p = partition{batches: p.batches[:0], done: driver.Unset, Partition: Partition{
			Held: true, Acquired: now, Renewed: now, Owner: o.Owner, Epoch: o.Epoch, Checkpoint: driver.Unset, Fetched: driver.Unset, Lag: -1, Failure: p.Failure,
		}}
	case driver.KindRenewed:
		t.answered = true
		p.Renewed = now
	case driver.KindLost, driver.KindReleased:
		if o.Kind == driver.KindLost && p.Failure.Failing() { // the failure that cost the lease is not over
			if !t.failure.Failing() {
				t.failure = p.Failure
			} else if p.Failure.Began.Before(t.failure.Began) {
				t.failure.Began = p.Failure.Began
			}
		}
		p.Partition, p.batches = released(p.Partition), p.batches[:0]
	}
}

// released is what remains of a partition's state without its lease.
func released(p Partition) Partition {
	return Partition{Acquired: p.Acquired, Epoch: p.Epoch, Checkpoint: p.Checkpoint, Fetched: driver.Unset, Lag: -1}
}

// health keeps what fails, is halted or is held up.
func (t *Tracker) health(p *partition, o *driver.Observation, now time.Time) {
	switch o.Kind {
	case driver.KindOpened:
		if p.Lag <= 0 { // otherwise it is not over before something is done
			p.Failure = Failure{}
		}
	case driver.KindCommitted:
		p.Failure = Failure{}
	case driver.KindFailed:
		p.Failure.add(o.Err, now, t.cfg.FailureGap)
	case driver.KindHalted:
		p.Stopped = o.Err
	case driver.KindStalled:
		if since := now.Add(-o.Duration); !p.Stall.Stalled() || since.Before(p.Stall.Began) {
			p.Stall.Began = since
		}
		p.Stall.Err = o.Err
	case driver.KindResumed:
		p.Stopped, p.Stall = nil, Stall{}
	}
}

// progress follows the events of a partition that is held.
func (t *Tracker) progress(p *partition, o *driver.Observation, now time.Time) {
	switch o.Kind {
	case driver.KindClaimed:
		p.Checkpoint, p.done = o.To, o.To
	case driver.KindOpened:
		for i, b := range p.batches { // those after the position are read again
			if b.last > o.To.Sequence {
				p.batches = p.batches[:i]
				break
			}
		}
	case driver.KindFetched:
		p.Fetched = o.To
		if len(p.batches) < maxBatches {
			p.batches = append(p.batches, batch{o.To.Sequence, o.Enqueued})
		}
		p.setLag(o.Lag, now)
	case driver.KindCommitted:
		p.Checkpoint = o.To
		if !t.counts.AtLeastOnce { // otherwise the checkpoint follows what is written after a while
			t.done(p, o, now)
		}
	case driver.KindWritten:
		p.InFlight = o.InFlight
		t.done(p, o, now)
	}
}

// done takes note of events that are done.
func (t *Tracker) done(p *partition, o *driver.Observation, now time.Time) {
	p.setLag(o.Lag, now)
	if o.To.Sequence > p.done.Sequence {
		p.done = o.To
	}
	p.rate.add(t.second(now), int64(o.Events))
	if o.Events > 0 {
		p.Progress = now
	}
	n := 0
	for n < len(p.batches) && p.batches[n].last <= o.To.Sequence {
		p.newest = p.batches[n].enqueued
		n++
	}
	p.batches = append(p.batches[:0], p.batches[n:]...)
}

func (p *partition) setLag(lag int64, now time.Time) {
	if lag >= 0 {
		p.Lag, p.LagAt = lag, now
	}
}

// SetLag sets the lag of a partition, if it is held, to what the log itself says.
// The next observation that reports a lag replaces it.
func (t *Tracker) SetLag(partition string, lag int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.partitions[partition]; p != nil && p.Held {
		p.Lag = lag
	}
}

// SetBounds sets the lag of a partition by what the log held at a time, if the partition is held
// and no observation has reported its lag since. The lag of a partition that is halted stays: what
// is done may be of another incarnation.
func (t *Tracker) SetBounds(partition string, b driver.Bounds, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.partitions[partition]; p != nil && p.Held && p.Stopped == nil && p.done.Sequence >= driver.Origin.Sequence && p.LagAt.Before(at) {
		p.Lag = b.Lag(p.done)
	}
}

// Held reports whether the consumer has a partition's lease.
func (t *Tracker) Held(partition string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.partitions[partition]
	return p != nil && p.Held
}

// second numbers the seconds since the tracker was made.
func (t *Tracker) second(now time.Time) int64 { return max(0, int64(now.Sub(t.began)/time.Second)) }

// Totals returns the counts and sums.
func (t *Tracker) Totals() Totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.totals()
}

func (t *Tracker) totals() Totals {
	c := t.counts
	c.Lag = -1
	for _, p := range t.partitions {
		if !p.Held {
			continue
		}
		c.Partitions++
		switch {
		case p.Stopped != nil:
			c.Halted++
		case p.Stall.Stalled():
			c.Stalled++
		}
		c.InFlight += p.InFlight
		if p.Lag >= 0 {
			c.Lag = max(c.Lag, 0) + p.Lag
		}
	}
	return c
}

// State returns a copy of all that is known.
func (t *Tracker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := State{Totals: t.totals(), Partitions: make(map[string]Partition, len(t.partitions)), Failure: t.failure, Answered: t.answered}
	second := t.second(t.cfg.Now())
	for id, p := range t.partitions {
		out := p.Partition
		out.Rate, out.Oldest = p.rate.mean(second), p.newest
		if len(p.batches) > 0 {
			out.Oldest = p.batches[0].enqueued
		}
		s.Partitions[id] = out
	}
	return s
}
