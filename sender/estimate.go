package sender

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// SizeUnaware is a service that refuses batches that are too large, and tells no
// sizes ahead. Its methods are called concurrently.
type SizeUnaware interface {
	// Partitions is [Transport]'s.
	Partitions(ctx context.Context) ([]string, error)
	// Send sends messages as one batch, once, and tells its fate. The error says
	// why it isn't Accepted.
	Send(ctx context.Context, partition string, messages []Message) (Outcome, error)
}

// EstimatorConfig holds what has a default. The zero value is ready to use.
type EstimatorConfig struct {
	// Limit is what a batch may have, in bytes, to begin with. Default: 262,000,
	// what Service Bus' standard tier takes.
	Limit int
	// Header is how many bytes a message has beside its body, to begin with.
	// Default: 54.
	Header int
	// Size is how many bytes a message has without its header. Default: its body.
	Size func(*Message) int
	// Overhead measures what a message has beside its body, as far as can be
	// told. Default: the lengths of its key, its ids, its content type, and its
	// properties' names and values.
	Overhead func(*Message) int
	// MaxMessages is how many messages a batch may have. Default: 4,500, what
	// Service Bus takes.
	MaxMessages int
}

// Estimator packs batches for a service that tells no sizes ahead. It takes a
// message for its body and a header, and learns from batches that are refused
// as too large: if a message of the batch has more beside its body than the
// header allows for, that is raised; if not, the limit is cut, to 95 % of it or
// of what the batch was taken for, whichever is less. The messages of that batch
// alone are packed and sent again. What was learned stays.
//
// So with a service that refuses what is taken for more than L, at most
// 1 + ln(Limit/L) / 0.051 refusals teach the limit, and as few the header, which
// is raised by at least a quarter. Batches that were on their way or filling
// meanwhile may each be refused once more.
//
// A message that is taken for more than the limit goes alone, for the service
// to judge; if that refuses it, the message can't be sent.
type Estimator struct {
	service SizeUnaware
	cfg     EstimatorConfig

	mu            sync.Mutex
	limit, header int
}

var (
	_ Transport = (*Estimator)(nil)
	_ Splitter  = (*Estimator)(nil)
)

// NewEstimator makes a transport of a service that tells no sizes.
func NewEstimator(service SizeUnaware, cfg *EstimatorConfig) (*Estimator, error) {
	e := &Estimator{service: service}
	if cfg != nil {
		e.cfg = *cfg
	}
	c := &e.cfg
	c.Limit = cmp.Or(c.Limit, 262_000)
	c.Header = cmp.Or(c.Header, 54)
	c.MaxMessages = cmp.Or(c.MaxMessages, 4500)
	if c.Size == nil {
		c.Size = func(m *Message) int { return len(m.Body) }
	}
	if c.Overhead == nil {
		c.Overhead = overhead
	}
	if c.Limit < 0 || c.Header < 0 || c.MaxMessages < 0 {
		return nil, fmt.Errorf("limit of %d bytes, header of %d, %d messages: must be positive", c.Limit, c.Header, c.MaxMessages)
	}
	e.limit, e.header = c.Limit, c.Header
	return e, nil
}

// overhead is the length of what a message has beside its body.
func overhead(m *Message) int {
	n := len(m.Key) + len(m.MessageID) + len(m.CorrelationID) + len(m.ContentType)
	for name, value := range m.Properties {
		n += len(name)
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		default:
			n += 9 // a type and eight bytes
		}
	}
	return n
}

// Learned is what is taken for the limit of a batch and the header of a message
// by now, in bytes.
func (e *Estimator) Learned() (limit, header int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit, e.header
}

// Partitions implements [Transport].
func (e *Estimator) Partitions(ctx context.Context) ([]string, error) {
	return e.service.Partitions(ctx)
}

// NewBatch implements [Transport].
func (e *Estimator) NewBatch(_ context.Context, partition string) (Batch, error) {
	return &estimate{by: e, partition: partition}, nil
}

// Send implements [Transport].
func (e *Estimator) Send(ctx context.Context, batch Batch) (Outcome, error) {
	b := batch.(*estimate)
	return e.service.Send(ctx, b.partition, b.messages)
}

// Split implements [Splitter]: it learns from the refusal.
func (e *Estimator) Split(batch Batch) []Batch {
	b := batch.(*estimate)
	if len(b.messages) < 2 {
		return nil
	}
	e.learn(b)
	var pieces []Batch
	last := &estimate{by: e, partition: b.partition}
	for i := range b.messages {
		if last.Add(&b.messages[i]) != nil {
			pieces = append(pieces, last)
			last = &estimate{by: e, partition: b.partition}
			last.put(&b.messages[i])
		}
	}
	return append(pieces, last)
}

// learn takes a refused batch for a lesson, unless it was packed before the last
// one and would be packed otherwise now.
func (e *Estimator) learn(b *estimate) {
	largest := 0
	for i := range b.messages {
		largest = max(largest, e.cfg.Overhead(&b.messages[i]))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if largest > e.header {
		e.header = max(largest, e.header+e.header/4)
		return
	}
	if size := b.size + len(b.messages)*e.header; size <= e.limit {
		e.limit = size * 95 / 100
	}
}

// estimate is a batch whose size is a guess.
type estimate struct {
	by        *Estimator
	partition string
	messages  []Message
	size      int // bytes without the headers
}

func (b *estimate) Len() int { return len(b.messages) }

func (b *estimate) Bytes() int {
	_, header := b.by.Learned()
	return b.size + len(b.messages)*header
}

func (b *estimate) Add(m *Message) error {
	limit, header := b.by.Learned()
	n := len(b.messages) + 1
	if n > 1 && (b.size+b.by.cfg.Size(m)+n*header > limit || n > b.by.cfg.MaxMessages) {
		return ErrTooLarge
	}
	b.put(m)
	return nil
}

func (b *estimate) put(m *Message) {
	b.messages = append(b.messages, *m)
	b.size += b.by.cfg.Size(m)
}
