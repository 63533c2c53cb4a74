package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/worklist"
)

// Ordering says which records [AtLeastOnce] keeps apart.
type Ordering uint8

// The orders. Whatever the order, dead letters that are retried come late.
const (
	// OrderKey: records of one key are written one after the other, in the
	// log's order; those without a key in any.
	OrderKey Ordering = iota
	// OrderPartition: a partition's records are written one after the other.
	OrderPartition
	// OrderNone: records are written in any order.
	OrderNone
)

// KeyPolicy says what becomes of the events behind a dead letter that have its
// partition key.
type KeyPolicy uint8

// The policies.
const (
	// KeyContinue: nothing.
	KeyContinue KeyPolicy = iota
	// KeyHold: they become dead letters too, unwritten, until none with the
	// key is left, so that a retry of all applies them in order.
	KeyHold
)

// AtLeastOnceConfig holds what has a default in [AtLeastOnce]. The zero value is
// ready to use.
type AtLeastOnceConfig struct {
	// Order is which records are never in flight together. Default: OrderKey.
	Order Ordering
	// Key returns a record's key for OrderKey; an empty key is none. The records
	// are those that the function given to AtLeastOnce makes. Default: the
	// event's partition key.
	Key func(record any) string
	// Rate is how many records a second may be sent, retries included; several
	// consumers may share one. Default: no bound.
	Rate *Rate
	// CheckpointEvery is the time between two checkpoints. Default: 5 s.
	CheckpointEvery time.Duration
	// MaxEvents and MaxBytes (of bodies) are how much may be in flight; each
	// partition gets an equal share, and reading stops at its end. Defaults:
	// 320,000 and 64 MiB.
	MaxEvents int
	MaxBytes  int64
	// MaxAge is how old an event may get in flight before a [*BacklogError]
	// is observed; with AgeFatal it ends [Consumer.Run]. Default: 10 min.
	MaxAge   time.Duration
	AgeFatal bool
	// RetryAfter is the wait before another attempt where the sink gives none.
	// Default: 2 s.
	RetryAfter time.Duration
	// OnDeadLetter is what becomes of its key. Default: KeyContinue.
	OnDeadLetter KeyPolicy
}

func (cfg *AtLeastOnceConfig) withDefaults() (AtLeastOnceConfig, error) {
	var c AtLeastOnceConfig
	if cfg != nil {
		c = *cfg
	}
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 5*time.Second)
	c.MaxEvents = cmp.Or(c.MaxEvents, 320_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.MaxAge = cmp.Or(c.MaxAge, 10*time.Minute)
	c.RetryAfter = cmp.Or(c.RetryAfter, 2*time.Second)
	switch {
	case c.Order > OrderNone:
		return c, fmt.Errorf("order %d: there is none of that number", c.Order)
	case c.OnDeadLetter > KeyHold:
		return c, fmt.Errorf("policy %d for the keys of dead letters: there is none of that number", c.OnDeadLetter)
	case c.CheckpointEvery < 0:
		return c, fmt.Errorf("checkpoint every %v: must be positive", c.CheckpointEvery)
	case c.MaxEvents < 0 || c.MaxBytes < 0:
		return c, fmt.Errorf("%d events and %d bytes in flight: must be positive", c.MaxEvents, c.MaxBytes)
	case c.MaxAge < 0:
		return c, fmt.Errorf("events of at most %v in flight: must be positive", c.MaxAge)
	case c.RetryAfter < 0:
		return c, fmt.Errorf("retries after %v: must be positive", c.RetryAfter)
	}
	return c, nil
}

// AtLeastOnce writes each event at least once to a store that can't join the
// checkpoint's transaction: many at a time, completed in any order. records
// makes an event's records; it must depend on nothing but the event, and an
// error of it sends the event to the dead letters at once. sink writes them.
// The checkpoint is the furthest event below which all are written or are dead
// letters; what is done behind it is kept beside it, so that little is
// written again after a crash: at most what was in flight, and what was
// completed since the last checkpoint. A nil cfg takes every default.
//
// Where the sink is the log of a next stage that is [Transactional], records
// with a [Stamp] (see [StampOf]) make the chain's effects exactly once. Those of
// one event and number must go to the same partition each time.
//
// [Hooks].Batch is not called.
func AtLeastOnce[R any](store driver.AtLeastOnceStore, records func(context.Context, *Event) ([]R, error), sink Sink[R], cfg *AtLeastOnceConfig) Delivery {
	c, err := cfg.withDefaults()
	return &atLeastOnce[R]{store: store, records: records, sink: sink, cfg: c, err: err}
}

type atLeastOnce[R any] struct {
	store   driver.AtLeastOnceStore
	records func(context.Context, *Event) ([]R, error)
	sink    Sink[R]
	cfg     AtLeastOnceConfig
	err     error // of the configuration
}

func (d *atLeastOnce[R]) check() error { return d.err }

// FencingToken says under which lease, and of which incarnation of the topic, an
// event is being written. Stores that can tell an older write from a newer one
// keep it with what they write.
type FencingToken struct {
	Lease       Lease
	Incarnation string
}

// FencingTokenOf gives the tenure of the contexts that [AtLeastOnce] calls records
// and [Sink].Submit with; of any other the zero value.
func FencingTokenOf(ctx context.Context) FencingToken {
	if em, ok := ctx.Value(emissionKey{}).(*emission); ok {
		return em.FencingToken
	}
	return FencingToken{}
}

// arrival is what the work list remembers of an event.
type arrival struct {
	Position
	at time.Duration // by Clock.Elapsed
}

// stream delivers one partition's events during one tenure. Its goroutine
// takes events as they come and submits their records (flight.go); the sink's
// goroutines bring back the results; a clerk keeps the checkpoint and the
// dead letters (clerk.go).
type stream[R any] struct {
	*atLeastOnce[R]
	*session

	making  context.Context           // for those who make and submit records: it carries an emission
	mark    atomic.Pointer[waterMark] // of the checkpoint, as last stored
	arrived Position                  // up to here events have been taken
	known   bool                      // skip and held are loaded
	skip    []driver.SequenceRange    // behind the checkpoint and done by an earlier tenure
	limit   int                       // events in flight at most
	bytes   int64                     // and of their bodies
	taken   uint64                    // events put on the work list
	done    uint64                    // of those, the ones below which all are done, when last asked

	queues[R]
	gate    gate
	landing bool // no more is sent

	news     chan struct{} // wakes the stream: a result, or a retry that is due
	alarmSet chan struct{} // wakes the alarm: it is to ring sooner
	flying   atomic.Int64  // records that the sink has
	weight   atomic.Int64  // bytes of events in flight

	helpers    sync.WaitGroup // the clerk and the alarm
	endHelpers context.CancelFunc

	mu sync.Mutex // guards what follows; never held over a call
	// list tells how far all is done. Of its methods Done alone needs no lock.
	list    *worklist.List[arrival]
	head    int64      // sequence number of the newest event on it
	landed  []*item[R] // results that the stream must see
	alarmAt time.Duration
	clerk   clerk[R]
}

func (d *atLeastOnce[R]) stream(t *tenure) *stream[R] {
	sharers := int(t.c.cfg.Partitions)
	if t.c.cfg.Partitions <= 0 { // it may come to hold all
		sharers = len(t.topic.Partitions)
	}
	s := &stream[R]{
		atLeastOnce: d,
		limit:       max(1, d.cfg.MaxEvents/sharers),
		bytes:       max(1, d.cfg.MaxBytes/int64(sharers)),
		gate:        gate{wait: t.c.backoff(t.rand)},
		news:        make(chan struct{}, 1),
		alarmSet:    make(chan struct{}, 1),
		alarmAt:     never,
	}
	s.session = &session{tenure: t, course: s, checkpoints: d.store, pos: driver.Unset}
	s.arrived = driver.Unset
	s.list = worklist.New[arrival](s.limit)
	s.clerk = clerk[R]{stream: s, taken: map[int64]bool{}, held: map[string]bool{}, failing: map[string]int{}}
	s.mark.Store(newWaterMark(driver.Origin.Sequence, nil))
	s.queues.init()
	return s
}

// start begins the goroutines beside the stream's own.
func (s *stream[R]) start() {
	ctx, cancel := context.WithCancel(s.work)
	s.endHelpers = cancel
	s.helpers.Go(func() { s.clerk.work(ctx) })
	s.helpers.Go(func() { s.ringAlarm(ctx) })
}

func (d *atLeastOnce[R]) deliver(t *tenure) error {
	s := d.stream(t)
	defer s.leave()
	leaveRate, err := d.joinRate(t)
	if err != nil {
		if t.idle.Err() == nil { // it is too low: no other tenure will do better
			t.c.fail(err)
		}
		return err
	}
	defer leaveRate()
	s.start()
	err = s.run()
	s.land(err)
	return err
}

// joinRate brings the partition's share to a rate that is a cluster's.
func (d *atLeastOnce[R]) joinRate(t *tenure) (leave func(), err error) {
	rate := d.cfg.Rate
	if rate == nil || !rate.cluster {
		return func() {}, nil
	}
	// Whoever had the partition's share before may have used it up to the last
	// moment.
	if err := t.pause(time.Second); err != nil {
		return nil, err
	}
	index := slices.Index(t.topic.Partitions, t.lease.Partition)
	if err := rate.join(t.lease.Partition, index, len(t.topic.Partitions)); err != nil {
		return nil, err
	}
	return func() { rate.part(t.lease.Partition) }, nil
}

// land waits for the records that the sink has, and stores what has come of
// them: as long as it takes if the consumer is to stop, for a moment if its
// work is cancelled.
func (s *stream[R]) land(cause error) {
	s.landing = true
	stopped := cause == nil || errors.Is(cause, ErrStopped)
	if !stopped {
		s.cancel(cause) // the partition is another's
	}
	parting, cancel := s.parting()
	defer cancel()
	for s.flying.Load() > 0 {
		s.absorb()
		over := s.work.Done()
		if s.work.Err() != nil {
			over = parting.Done()
		}
		select {
		case <-s.news:
		case <-over:
		}
		if parting.Err() != nil && s.work.Err() != nil {
			break
		}
	}
	s.absorb()
	s.endHelpers()
	s.helpers.Wait()
	if !stopped || s.work.Err() != nil && !errors.Is(context.Cause(s.work), ErrStopped) {
		return
	}
	ctx, done := s.parting()
	defer done()
	s.clerk.close(ctx)
}

func (d *atLeastOnce[R]) due(ctx context.Context, group Group, partition string) (bool, error) {
	letters, err := d.store.Due(ctx, group, partition, 1)
	return len(letters) > 0, err
}

func (d *atLeastOnce[R]) redrive(t *tenure) (applied, failed int, err error) {
	s := d.stream(t)
	defer s.leave()
	leaveRate, err := d.joinRate(t)
	if err != nil {
		return 0, 0, err
	}
	defer leaveRate()
	if err := s.claim(); err != nil {
		return 0, 0, err
	}
	s.start()
	err = s.redriveAll()
	s.land(err)
	return s.clerk.applied, s.clerk.failedAgain, err
}

// redriveAll runs retries until none is due, with nobody reading the log.
func (s *stream[R]) redriveAll() error {
	for {
		if err := s.beforeOpen(); err != nil {
			return err
		}
		for s.busy() {
			if err := s.advance(); err != nil {
				return err
			}
		}
		s.clerk.settle(s.idle)
		if s.idle.Err() != nil {
			return s.ended()
		}
		if more, err := s.due(s.idle, s.topic.Group, s.lease.Partition); err != nil || !more {
			return err
		}
		if err := s.pause(s.c.cfg.RetryMin); err != nil {
			return err
		}
	}
}

// accept takes over what a claim returned. Only the first of a tenure tells
// something new: nobody else moves the checkpoint in this epoch.
func (s *stream[R]) accept(p Checkpoint) {
	if s.arrived == driver.Unset {
		s.pos, s.arrived, s.skip = p.Position, p.Position, p.Done
		s.clerk.begin(p.Position)
		s.making = context.WithValue(s.work, emissionKey{}, &emission{
			FencingToken: FencingToken{Lease: s.lease, Incarnation: s.incarnation},
			source:       sourceOf(s.topic.Group, s.incarnation),
			mark:         &s.mark,
		})
	}
	s.observe(Observation{Kind: KindClaimed, To: p.Position, Attempt: p.Claims})
}

func (s *stream[R]) begin(start Position) error {
	if err := s.store.Advance(s.work, s.lease, start, nil); err != nil {
		return err
	}
	s.pos, s.arrived = start, start
	s.clerk.begin(start)
	return nil
}

func (s *stream[R]) from() Position { return s.arrived }

// beforeOpen learns what dead letters there are, and reads again those on
// retry whose bodies are not stored: the broker wants no other reader of ours.
func (s *stream[R]) beforeOpen() error {
	if !s.known {
		parked, err := s.store.Parked(s.idle, s.topic.Group, s.lease.Partition, s.incarnation, driver.Origin.Sequence)
		if err != nil {
			return fmt.Errorf("look for dead letters: %w", err)
		}
		behind, _ := slices.BinarySearch(parked, s.pos.Sequence+1)
		for _, n := range parked[behind:] {
			s.skip = append(s.skip, driver.SequenceRange{First: n, Last: n})
		}
		slices.SortFunc(s.skip, func(a, b driver.SequenceRange) int { return cmp.Compare(a.First, b.First) })
		s.clerk.know(parked, slices.Clone(s.skip), s.pos)
		if s.cfg.OnDeadLetter == KeyHold {
			held, err := s.store.Held(s.idle, s.topic.Group, s.lease.Partition)
			if err != nil {
				return fmt.Errorf("look for keys held back: %w", err)
			}
			s.clerk.hold(held)
		}
		s.known = true
	}
	letters, err := s.store.Due(s.idle, s.topic.Group, s.lease.Partition, redrivePage)
	if err != nil {
		return fmt.Errorf("look for retries: %w", err)
	}
	for i := range letters {
		if err := s.redriveOne(&letters[i], true); err != nil {
			return err
		}
	}
	return nil
}

// redriveOne puts a dead letter on its way again, unless it is on it.
func (s *stream[R]) redriveOne(d *DeadLetter, mayRead bool) error {
	if !s.clerk.take(d.ID) {
		return nil
	}
	e := &d.Event
	if !d.HasBody {
		if !mayRead {
			s.clerk.forget(d.ID)
			return errReopen
		}
		found, err := s.reread(d)
		switch {
		case err == nil:
			e = found
		case s.idle.Err() == nil && (errors.Is(err, ErrRetention) || errors.Is(err, ErrPastEnd) || errors.Is(err, ErrRecreated)):
			s.clerk.giveBack(d, err)
			return nil
		default:
			s.clerk.forget(d.ID)
			return err
		}
	}
	s.enter(&flight{event: e, letter: d})
	return nil
}

// drain submits what comes into the box, as there is room for it.
func (s *stream[R]) drain(box *inbox) error {
	for {
		if s.idle.Err() != nil {
			return s.ended()
		}
		for _, d := range s.clerk.retries() {
			if err := s.redriveOne(d, false); err != nil {
				return err
			}
		}
		s.absorb()
		if s.mayGo() {
			if err := s.submit(); err != nil {
				return err
			}
			continue
		}
		if s.idleQueues() {
			events, err := box.take(min(s.room(), s.c.cfg.MaxBatch))
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			if len(events) > 0 {
				s.arrive(events)
				continue
			}
		}
		select {
		case <-box.news:
		case <-s.news:
		case <-s.idle.Done():
		}
	}
}

// advance does one step of a stream that reads nothing.
func (s *stream[R]) advance() error {
	s.absorb()
	if s.mayGo() {
		return s.submit()
	}
	if !s.busy() {
		return nil
	}
	select {
	case <-s.news:
		return nil
	case <-s.idle.Done():
		return s.ended()
	}
}

// room is how many events may still be taken: those from the oldest that is
// not done on count, for the work list spans them.
func (s *stream[R]) room() int {
	if s.weight.Load() >= s.bytes {
		return 0
	}
	room := s.limit - int(s.taken-s.done)
	if room < s.c.cfg.MaxBatch {
		s.mu.Lock()
		_, s.done = s.list.Low()
		s.mu.Unlock()
		room = s.limit - int(s.taken-s.done)
	}
	return room
}

// arrive puts events on the work list and makes their records.
func (s *stream[R]) arrive(events []*Event) {
	now := s.c.cfg.Clock.Elapsed()
	flights := make([]flight, len(events))
	s.mu.Lock()
	for i, e := range events {
		slot, _ := s.list.Arrive(arrival{e.Position(), now}) // there is room
		flights[i] = flight{event: e, slot: slot}
	}
	s.head = events[len(events)-1].Sequence
	s.mu.Unlock()
	s.taken += uint64(len(events))
	for i, e := range events {
		s.arrived = e.Position()
		if s.isDone(e.Sequence) {
			s.list.Done(flights[i].slot)
			continue
		}
		s.weight.Add(int64(len(e.Body)))
		s.enter(&flights[i])
	}
}

// isDone tells whether an earlier tenure has done an event. It is asked in
// ascending order.
func (s *stream[R]) isDone(sequence int64) bool {
	for len(s.skip) > 0 && s.skip[0].Last < sequence {
		s.skip = s.skip[1:]
	}
	return len(s.skip) > 0 && s.skip[0].First <= sequence
}
