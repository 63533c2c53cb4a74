package sender

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Ordered has all messages arrive in their order, not just those of a key or
	// session: one batch is on its way at a time, and to an event hub it ends
	// where the next message goes to another partition. Messages without a key
	// follow the one before to its partition. Default: messages of a key or
	// session keep their order.
	Ordered bool
	// Spread deals messages without a key out to the partitions one by one, so
	// that each has its share also of few messages. Default: they fill one batch
	// after the other, and the batches go to the partitions in turn, which takes
	// the fewest. Without effect if Ordered.
	Spread bool
	// NoDuplicates has a batch whose answer was lost end the sending, because it
	// may be there. Default: it is sent again, and may be there twice.
	NoDuplicates bool
	// MaxWait is how long a message waits at most for others to fill its
	// batch, also while the sequence pauses. Default: until it is full, or the
	// sequence ends.
	MaxWait time.Duration
	// Refused is called for each message that can't be sent, at once, perhaps
	// from several goroutines; for one that is refused as it is drawn, before the
	// sequence goes on. The error of SendAll doesn't name it then. Default: the
	// error names the first 16.
	OnRejected func(*RejectedError)
	// InFlight is how many batches may be on their way. As many again as the
	// hub has partitions may be filling. Default: 16.
	InFlight int
	// Attempts is how many times a batch is sent. Default: 8.
	Attempts int
	// RetryMin and RetryMax bound the pauses between the attempts, which double
	// from one to the next. Default: 200 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// Timeout is how long an attempt may take. Default: 60 s.
	Timeout time.Duration
	// DrainTimeout is how long batches on their way are waited for once the context
	// has ended. Default: 5 s.
	DrainTimeout time.Duration
}

func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.MaxWait = max(c.MaxWait, 0)
	c.InFlight = cmp.Or(max(c.InFlight, 0), 16)
	if c.Ordered {
		c.InFlight, c.Spread = 1, false
	}
	c.Attempts = cmp.Or(max(c.Attempts, 0), 8)
	c.RetryMin = cmp.Or(max(c.RetryMin, 0), 200*time.Millisecond)
	c.RetryMax = max(c.RetryMin, cmp.Or(max(c.RetryMax, 0), 10*time.Second))
	c.Timeout = cmp.Or(max(c.Timeout, 0), time.Minute)
	c.DrainTimeout = cmp.Or(max(c.DrainTimeout, 0), 5*time.Second)
	return c
}

// Sender sends messages over a transport. It may be used concurrently; what
// one SendAll sends has no order to what another does.
type Sender struct {
	transport Transport
	cfg       Config

	messages, batches, bytes, retries, tooLarge atomic.Int64
}

// New makes a sender. The transport stays the caller's to close.
func New(transport Transport, cfg *Config) *Sender {
	return &Sender{transport: transport, cfg: cfg.withDefaults()}
}

// Stats is what the sender has done so far, in all its SendAlls.
func (s *Sender) Stats() Stats {
	return Stats{
		Messages: s.messages.Load(), Batches: s.batches.Load(), Bytes: s.bytes.Load(),
		Retries: s.retries.Load(), TooLarge: s.tooLarge.Load(),
	}
}

// SendAll sends what the sequence yields, of which it holds no more than
// [Config.InFlight] batches on their way and those that are filling. It returns
// once each message's fate is known, or can't be; the error is nil if all were
// accepted, or told to [Config.OnRejected]. The sequence is run by the calling goroutine.
//
// Once ctx ends, SendAll draws no more messages and waits [Config.DrainTimeout] for
// batches on their way; those that have no answer then are in the report's
// Unknown.
func (s *Sender) SendAll(ctx context.Context, messages iter.Seq[Message]) (Report, error) {
	r, err := s.begin(ctx)
	if err != nil {
		return Report{}, err
	}
	defer r.stop(nil)
	defer r.halt()
	var m Message // one for all, as its address goes to the transport
	for m = range messages {
		if !r.take(&m) {
			break
		}
	}
	r.tended()
	r.flush()
	r.halt()
	return r.report()
}

// begin asks for the partitions and starts a lane for each.
func (s *Sender) begin(ctx context.Context) (*run, error) {
	r := &run{s: s, tokens: make(chan struct{}, s.cfg.InFlight), id: []byte(rand.Text())}
	r.going, r.stop = context.WithCancelCause(ctx)
	r.sending, r.cut = context.WithCancel(context.WithoutCancel(ctx))
	r.parted = context.AfterFunc(ctx, func() { time.AfterFunc(s.cfg.DrainTimeout, r.cut) })
	var partitions []string
	err := r.persist(func(ctx context.Context) (err error) {
		partitions, err = s.transport.Partitions(ctx)
		return err
	})
	if err == nil && len(partitions) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		r.halt()
		r.stop(nil)
		return nil, fmt.Errorf("look up the partitions: %w", err)
	}
	if mixer, ok := s.transport.(PartitionMixer); ok {
		r.mixed = s.cfg.Ordered && mixer.MixesPartitions()
	}
	r.keyed, r.loose = make([]*parcel, len(partitions)), make([]*parcel, 1)
	if s.cfg.Spread {
		r.loose = make([]*parcel, len(partitions))
	}
	for _, name := range partitions {
		l := &lane{partition: name, in: make(chan *parcel)}
		r.lanes = append(r.lanes, l)
		r.work.Go(func() { r.serve(l) })
	}
	r.turn = mrand.IntN(len(r.lanes)) // many short sequences don't all begin with the same
	r.tend()
	return r, nil
}

// persist tries until it works, or is of no use, or has been tried often
// enough.
func (r *run) persist(do func(context.Context) error) error {
	pause := r.pause()
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(r.going, r.s.cfg.Timeout)
		err := do(ctx)
		cancel()
		if err == nil || errors.Is(err, ErrPermanent) || attempt >= r.s.cfg.Attempts {
			return err
		}
		if !pause.wait(r.going) {
			return context.Cause(r.going)
		}
	}
}
