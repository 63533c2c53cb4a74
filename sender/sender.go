package sender

import (
	"cmp"
	"context"
	"iter"
	"sync/atomic"
	"time"
)

// Config holds optional settings. The zero value is ready to use.
type Config struct {
	// Ordered keeps the order of all messages, not only of those with the same key
	// or session. One batch is in flight at a time, and to an event hub a batch
	// ends where the next message goes to another partition. A message without a
	// key goes to the partition of the message before it.
	Ordered bool
	// Spread distributes messages without a key over the partitions one by one, so
	// that few messages are spread evenly too. Default: they fill one batch after
	// the other, and the batches go to the partitions in turn, which takes the
	// fewest batches. No effect if Ordered.
	Spread bool
	// NoDuplicates makes SendAll stop when the answer to a batch is lost, because
	// the batch may be stored. Default: the batch is sent again and may be stored
	// twice.
	NoDuplicates bool
	// MaxWait is how long a message waits at most for others to fill its batch,
	// also while the sequence pauses. Default: until the batch is full or the
	// sequence ends.
	MaxWait time.Duration
	// OnRejected is called at once for each message that can't be sent, possibly
	// from several goroutines. For a message that is rejected before it is sent,
	// the call comes before the next message is taken from the sequence. The error
	// of SendAll then has no rejected messages. Default: the error has the first
	// 16.
	OnRejected func(*RejectedError)
	// OnAccepted is called for each batch that the service has confirmed, with the
	// indices of its messages, sorted. It is called from several goroutines, and
	// the batch counts as in flight until it returns. Default: none.
	OnAccepted func([]IndexRange)
	// ClaimCheck stores large bodies elsewhere, before their messages are sent, one
	// body at a time. A body that can't be stored ends the sending. Default: all
	// bodies are sent.
	ClaimCheck *ClaimCheck
	// InFlight is how many batches may be in flight. In addition, one batch may be
	// filling for each partition, and one of messages without a key (with Spread,
	// one for each partition). Default: 16.
	InFlight int
	// Attempts is how many times a batch is sent at most. Default: 8.
	Attempts int
	// RetryMin and RetryMax bound the pauses between attempts. Each pause is twice
	// the one before. Default: 200 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// Timeout is how long an attempt may take. Default: 60 s.
	Timeout time.Duration
	// DrainTimeout is how long SendAll waits for batches in flight after its
	// context has ended. Default: 5 s.
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

// Sender sends messages over a transport. It is safe for concurrent use, but the
// messages of concurrent SendAlls have no order among each other.
type Sender struct {
	packer *packer
	cfg    Config
	spare  spareMemory

	messages, batches, bytes, retries, tooLarge atomic.Int64
}

// New makes a sender. The caller closes the transport.
func New(transport Transport, cfg *Config) *Sender {
	return &Sender{packer: newPacker(transport), cfg: cfg.withDefaults()}
}

// Stats returns what all SendAlls of the sender have done so far.
func (s *Sender) Stats() Stats {
	return Stats{
		Messages: s.messages.Load(), Batches: s.batches.Load(), Bytes: s.bytes.Load(),
		Retries: s.retries.Load(), TooLarge: s.tooLarge.Load(),
	}
}

// SendAll sends the messages of a sequence of any length. It keeps each message
// until its batch has an outcome, and holds no more messages than fit into the
// batches in flight ([Config.InFlight]) and those that are filling. The calling
// goroutine runs the sequence.
//
// SendAll returns once the outcome of each message is known, or can't become
// known. The error is nil if all messages were accepted, except those that
// [Config.OnRejected] was called for; otherwise the report says what became of
// each message.
//
// When ctx ends, SendAll takes no more messages and waits up to
// [Config.DrainTimeout] for the batches in flight. The messages of batches that
// have no answer by then are in the report's Unknown.
func (s *Sender) SendAll(ctx context.Context, messages iter.Seq[Message]) (Report, error) {
	r, err := s.begin(ctx)
	if err != nil {
		return Report{}, err
	}
	defer r.stop(nil)
	defer r.drain()
	var m Message // one for all, because its address goes to the transport
	for m = range messages {
		if !r.take(&m) {
			break
		}
	}
	r.stopFlusher()
	r.flush()
	r.drain()
	return r.report()
}
