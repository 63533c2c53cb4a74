package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/stamp"
)

// ErrClosed is wrapped by the outage that completes the messages of a [Sink]
// that is closed.
var ErrClosed = errors.New("sink is closed")

// SinkConfig holds optional settings. The zero value is ready to use.
type SinkConfig struct {
	// FlushAfter is how long a message waits for others to fill its batch.
	// Default: 5 ms.
	FlushAfter time.Duration
	// InFlight is how many batches may be in flight. Default: 16.
	InFlight int
	// StampKey is the secret with which the stamps of messages are signed (see [Stamped]),
	// of at least 16 bytes. The next stage believes only signed stamps if it has the same
	// key in sluice.Config.StampsFrom. Default: stamps are not signed.
	StampKey []byte
	// Timeout is how long sending a batch may take. If the service refuses the
	// batch, it applies to each smaller batch that is sent instead. Default: 60 s.
	Timeout time.Duration
	// OnSent is called after each attempt to send a batch, from several goroutines, before its
	// messages get their results. It must return at once. Default: none.
	OnSent func(Sent)
}

// Sent is an attempt of a [Sink] to send a batch.
type Sent struct {
	Messages int
	Duration time.Duration
	Err      error // nil: the service accepted the batch
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

// Sink sends the messages that sluice.AtLeastOnce makes of events. Each message
// has its own result. The Sink doesn't retry: the engine does, and so decides on
// the order, which with sluice.OrderKey is that of each key.
//
// A message with a key or session goes to the partition of that. A message
// without one goes by the id of its stamp (see [Stamped]), so to the same
// partition each time, or without a stamp to any partition. A message that
// carries the stamp of an earlier stage is rejected.
//
// A Sink is safe for concurrent use by any number of consumers. Stop it with
// [Sink.Close]; the caller closes the transport.
type Sink struct {
	packer *packer
	cfg    SinkConfig

	sending  context.Context // ends when batches in flight are abandoned
	abandon  context.CancelFunc
	tokens   chan struct{} // one for each batch in flight
	closing  chan struct{} // closed by Close: no message waits for others any more
	idle     chan struct{} // signals that the sink is closed and unfinished is 0
	working  sync.WaitGroup
	sweeping sync.WaitGroup

	mu         sync.Mutex // guards the fields below, and the queues of the partitions
	closed     bool
	unfinished int        // messages without a result
	lookingUp  bool       // the partitions are being looked up
	waiting    []*pending // messages submitted before the partitions were known
	next       int        // the partition of the next message that may go to any

	// Two for each partition: the first half is for messages with a key, the
	// second half for messages without.
	partitions []*sinkPartition
}

var _ driver.Sink[*Message] = (*Sink)(nil)

// NewSink makes a sink. It doesn't connect: if the service can't be reached or
// refuses the credentials, the results of the submitted messages are outages.
func NewSink(transport Transport, cfg *SinkConfig) *Sink {
	s := &Sink{packer: newPacker(transport), cfg: cfg.withDefaults(), closing: make(chan struct{}), idle: make(chan struct{}, 1)}
	s.tokens = make(chan struct{}, s.cfg.InFlight)
	s.sending, s.abandon = context.WithCancel(context.Background())
	s.sweeping.Go(s.sweepLoop)
	return s
}

// pending is a message without a result.
type pending struct {
	ctx     context.Context
	message *Message
	done    func(driver.WriteResult)
	queued  time.Time
}

// Submit queues a message and returns at once. The message must not be changed
// until done is called.
//
// If ctx ends while the message is queued, done gets ctx's error within 100 ms
// and the message isn't sent. The same holds for a message whose batch was
// refused and that waits to be sent again. Once the message is in flight, done
// gets what the service answers, or an error after [SinkConfig.Timeout], even if
// ctx ends: a message whose result is ctx's error is never sent later.
func (s *Sink) Submit(ctx context.Context, m *Message, done func(driver.WriteResult)) {
	p := &pending{ctx: ctx, message: m, done: done, queued: time.Now()}
	foreign := hasForeignStamp(ctx, m)
	if len(s.cfg.StampKey) > 0 && !foreign {
		stamp.Sign(m.Properties, s.cfg.StampKey)
	}
	s.mu.Lock()
	s.unfinished++
	switch {
	case s.closed:
		s.mu.Unlock()
		s.complete(driver.Outage(ErrClosed), p)
		return
	case foreign:
		s.mu.Unlock()
		s.complete(driver.Reject(errForeignStamp), p)
		return
	case s.partitions == nil:
		s.waiting = append(s.waiting, p)
		if !s.lookingUp {
			s.lookingUp = true
			s.working.Go(s.lookUpPartitions)
		}
	default:
		s.partitionOf(m).add(p)
	}
	s.mu.Unlock()
}

var errForeignStamp = errors.New("message carries the stamp of an earlier stage's event: wrap the mapping in sender.Stamped, or remove the stamp with stamp.Drop")

// hasForeignStamp reports whether a message has a stamp that isn't of the stage
// that submits it, as it has if its properties are those of a stamped event. The
// next stage would take several such messages for duplicates of one.
func hasForeignStamp(ctx context.Context, m *Message) bool {
	properties := m.Properties
	if len(m.Headers) > 0 {
		properties = make(map[string]any, len(m.Headers)+len(m.Properties))
		for _, h := range m.Headers {
			properties[h.Name] = string(h.Value)
		}
		maps.Copy(properties, m.Properties)
	}
	s, there, err := stamp.From(properties)
	return there && err == nil && stamp.Foreign(ctx, s)
}

// partitionOf is where a message goes. Event Hubs gives an event without a key
// the key of the batch's first event, so messages without a key have batches of
// their own.
func (s *Sink) partitionOf(m *Message) *sinkPartition {
	n := len(s.partitions) / 2
	if m.grouped() {
		return s.partitions[s.packer.partitionOf(m.group(), n)]
	}
	if stamp, ok, err := stamp.From(m.Properties); ok && err == nil {
		return s.partitions[n+s.packer.partitionOf(stamp.ID.String(), n)]
	}
	s.next = (s.next + 1) % n
	return s.partitions[n+s.next]
}

// lookUpPartitions looks up the partitions and queues the messages that wait for
// them.
func (s *Sink) lookUpPartitions() {
	ctx, cancel := context.WithTimeout(s.sending, s.cfg.Timeout)
	defer cancel()
	names, err := s.packer.transport.Partitions(ctx)
	if err == nil && len(names) == 0 {
		err = errNoPartitions
	}
	s.mu.Lock()
	waiting := s.waiting
	s.lookingUp, s.waiting = false, nil
	if err == nil {
		s.partitions = make([]*sinkPartition, 2*len(names))
		for i := range s.partitions {
			s.partitions[i] = &sinkPartition{sink: s, partition: names[i%len(names)], full: make(chan struct{}, 1)}
		}
		for _, p := range waiting {
			s.partitionOf(p.message).add(p)
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.complete(driver.Outage(fmt.Errorf("look up partitions: %w", err)), waiting...)
	}
}

// complete reports the result of messages that are in no queue any more.
func (s *Sink) complete(err error, messages ...*pending) {
	for _, p := range messages {
		p.done(driver.WriteResult{Err: err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfinished -= len(messages); s.unfinished == 0 && s.closed {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// Close sends what is queued, without waiting for batches to fill, and returns
// once each message has its result. If ctx ends first, Close abandons the batches
// in flight, completes the queued messages with [ErrClosed] and returns ctx's
// error.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	unfinished := s.unfinished
	s.mu.Unlock()
	var err error
	for unfinished > 0 && err == nil {
		select {
		case <-s.idle:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		unfinished = s.unfinished
		s.mu.Unlock()
	}
	s.abandon()
	s.working.Wait()
	s.sweeping.Wait()
	return err
}

// sweepEvery is how often the queues are searched for messages whose contexts
// have ended.
const sweepEvery = 100 * time.Millisecond

func (s *Sink) sweepLoop() {
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

// sweep completes the queued messages whose contexts have ended.
func (s *Sink) sweep() {
	var ended []*pending
	remove := func(queue []*pending) []*pending {
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
	s.waiting = remove(s.waiting)
	for _, p := range s.partitions {
		p.queue = remove(p.queue)
	}
	s.mu.Unlock()
	for _, p := range ended {
		s.complete(p.ctx.Err(), p)
	}
}
