package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/keyhash"
)

// ErrClosed is the outage that messages meet in a [Sink] that is closed.
var ErrClosed = errors.New("the sink is closed")

// SinkConfig holds what has a default. The zero value is ready to use.
type SinkConfig struct {
	// FlushAfter is how long a message waits for others to fill its batch.
	// Default: 5 ms.
	FlushAfter time.Duration
	// InFlight is how many batches may be on their way. Default: 16.
	InFlight int
	// Timeout is how long a batch may take; where the service wants it in
	// pieces, each of them. Default: 60 s.
	Timeout time.Duration
}

func (cfg *SinkConfig) withDefaults() SinkConfig {
	var c SinkConfig
	if cfg != nil {
		c = *cfg
	}
	c.FlushAfter = cmp.Or(max(c.FlushAfter, 0), 5*time.Millisecond)
	c.InFlight = cmp.Or(max(c.InFlight, 0), 16)
	c.Timeout = cmp.Or(max(c.Timeout, 0), time.Minute)
	return c
}

// Sink sends the messages that [sluice.AtLeastOnce] makes of events. Each has
// an outcome of its own; none is sent again but by the engine, so the Sink's
// order is the engine's: with [sluice.OrderKey], that of each key.
//
// A message without a key goes by the id of its stamp (see [Stamped]) to a
// partition that is the same each time, or without one to any. One with a stamp
// of another stage's is rejected.
//
// It is safe for concurrent use, by any number of consumers. [Sink.Close] ends
// it; the transport stays the caller's to close.
type Sink struct {
	transport Transport
	cfg       SinkConfig

	sending  context.Context // ends when batches on their way are given up
	cut      context.CancelFunc
	tokens   chan struct{} // one for each batch on its way
	closing  chan struct{} // closed by Close: nothing waits for others any more
	settled  chan struct{} // a note that the sink closes and live is 0
	working  sync.WaitGroup
	watching sync.WaitGroup

	mu      sync.Mutex // guards what follows, and the outlets' queues
	closed  bool
	live    int       // messages without an outcome
	seeking bool      // the partitions are being looked up
	early   []*packet // what came before they were known
	outlets []*outlet // for each partition that of messages with keys, then that of the others
	turn    int       // the partition of the next message that may go to any
}

var _ sluice.Sink[*Message] = (*Sink)(nil)

// NewSink makes a sink. It doesn't connect: a service that is away, or refuses
// the credentials, is an outage, in the outcome of what is submitted.
func NewSink(transport Transport, cfg *SinkConfig) *Sink {
	s := &Sink{transport: transport, cfg: cfg.withDefaults(), closing: make(chan struct{}), settled: make(chan struct{}, 1)}
	s.tokens = make(chan struct{}, s.cfg.InFlight)
	s.sending, s.cut = context.WithCancel(context.Background())
	s.watching.Go(s.watch)
	return s
}

// packet is a message that has no outcome yet.
type packet struct {
	ctx     context.Context
	message *Message
	done    func(sluice.Result)
	since   time.Time
}

// Submit queues a message and returns at once. Nothing of it may be changed
// until done is called.
//
// A message whose ctx ends while it is queued is completed with ctx's error
// within a tenth of a second, and is not sent; nor is one whose batch is sent
// in pieces, if its piece hasn't begun. One that is on its way is completed with what the service says, or when [SinkConfig.Timeout] is up: so
// what is done doesn't take effect later.
func (s *Sink) Submit(ctx context.Context, m *Message, done func(sluice.Result)) {
	p := &packet{ctx: ctx, message: m, done: done, since: time.Now()}
	foreign := inherited(ctx, m)
	s.mu.Lock()
	s.live++
	switch {
	case s.closed:
		s.mu.Unlock()
		s.finish(sluice.Outage(ErrClosed), p)
		return
	case foreign:
		s.mu.Unlock()
		s.finish(sluice.Reject(errInherited), p)
		return
	case s.outlets == nil:
		s.early = append(s.early, p)
		if !s.seeking {
			s.seeking = true
			s.working.Go(s.seek)
		}
	default:
		s.outlet(m).push(p)
	}
	s.mu.Unlock()
}

var errInherited = errors.New("the message carries the stamp of an event of an earlier stage: have Stamped make its own")

// inherited tells whether a message has a stamp that isn't of the stage that
// submits it, as its properties have if they are those of a stamped event. The
// next stage would take several such messages for one and its repeats.
func inherited(ctx context.Context, m *Message) bool {
	stamp, there, err := sluice.StampFrom(m.Properties)
	if !there || err != nil {
		return false
	}
	own, known := sluice.StampOf(ctx, &sluice.Event{}, 0)
	return known && own.ID.Source != stamp.ID.Source
}

// outlet is where a message goes. Event Hubs gives an event without a key that
// of the batch's first event: so those have batches of their own.
func (s *Sink) outlet(m *Message) *outlet {
	n := len(s.outlets) / 2
	if key := m.group(); key != "" {
		return s.outlets[keyhash.Partition(key, n)]
	}
	if stamp, ok, err := sluice.StampFrom(m.Properties); ok && err == nil {
		return s.outlets[n+keyhash.Partition(stamp.ID.String(), n)]
	}
	s.turn = (s.turn + 1) % n
	return s.outlets[n+s.turn]
}

// seek looks the partitions up, and places what waits for them.
func (s *Sink) seek() {
	ctx, cancel := context.WithTimeout(s.sending, s.cfg.Timeout)
	defer cancel()
	partitions, err := s.transport.Partitions(ctx)
	if err == nil && len(partitions) == 0 {
		err = errors.New("there are none")
	}
	s.mu.Lock()
	early := s.early
	s.seeking, s.early = false, nil
	if err == nil {
		s.outlets = make([]*outlet, 2*len(partitions))
		for i := range s.outlets {
			s.outlets[i] = &outlet{sink: s, partition: partitions[i%len(partitions)], full: make(chan struct{}, 1)}
		}
		for _, p := range early {
			s.outlet(p.message).push(p)
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.finish(sluice.Outage(fmt.Errorf("look up the partitions: %w", err)), early...)
	}
}

// finish completes messages, which none of the queues has any more.
func (s *Sink) finish(err error, packets ...*packet) {
	for _, p := range packets {
		p.done(sluice.Result{Err: err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live -= len(packets); s.live == 0 && s.closed {
		select {
		case s.settled <- struct{}{}:
		default:
		}
	}
}

// Close sends what is queued, without waiting for batches to fill, and returns
// once all has its outcome. When ctx ends before, it gives up what is on its
// way, completes what is still queued with [ErrClosed], and returns ctx's error.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	live := s.live
	s.mu.Unlock()
	var err error
	for live > 0 && err == nil {
		select {
		case <-s.settled:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		live = s.live
		s.mu.Unlock()
	}
	s.cut()
	s.working.Wait()
	s.watching.Wait()
	return err
}

// sweepEvery is how often what is queued is looked through for ended contexts.
const sweepEvery = 100 * time.Millisecond

// watch completes messages whose contexts end while they are queued.
func (s *Sink) watch() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweep()
		case <-s.sending.Done():
			return
		}
	}
}

func (s *Sink) sweep() {
	var ended []*packet
	sift := func(queue []*packet) []*packet {
		kept := queue[:0]
		for _, p := range queue {
			if p.ctx.Err() != nil {
				ended = append(ended, p)
			} else {
				kept = append(kept, p)
			}
		}
		clear(queue[len(kept):])
		return kept
	}
	s.mu.Lock()
	s.early = sift(s.early)
	for _, o := range s.outlets {
		o.queue = sift(o.queue)
	}
	s.mu.Unlock()
	for _, p := range ended {
		s.finish(p.ctx.Err(), p)
	}
}
