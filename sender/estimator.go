package sender

import (
	"cmp"
	"context"
	"fmt"
)

// SizeUnaware is a service whose client can't say how large a batch is or may
// be: the service refuses what is too large. [NewEstimator] makes a [Transport]
// of it. Its methods are called concurrently.
type SizeUnaware interface {
	// Partitions is [Transport]'s.
	Partitions(ctx context.Context) ([]string, error)
	// Send sends messages as one batch, once. The error says why the outcome
	// isn't OutcomeAccepted.
	Send(ctx context.Context, partition string, messages []Message) (Outcome, error)
}

// EstimatorConfig holds optional settings. The zero value is ready to use.
type EstimatorConfig struct {
	// Limit is the size of a batch to begin with, in bytes. Default: 262,000,
	// what the standard tier of Service Bus takes.
	Limit int
	// Header is how many bytes a message has beside its body, to begin with.
	// Default: 54.
	Header int
	// Size returns how many bytes a message has without its header. Default: the
	// length of its body.
	Size func(*Message) int
	// Overhead returns how many bytes a message has beside its body, as far as
	// is known. Default: the lengths of its key, its ids, its content type, and
	// its properties' and headers' names and values.
	Overhead func(*Message) int
	// MaxMessages is how many messages a batch may have. Default: 4,500, what
	// Service Bus takes.
	MaxMessages int
}

// Estimator is a [Transport] that packs batches by estimated sizes. It counts a
// message as its body and a header, and corrects the estimate when the service
// refuses a batch as too large. If a message of the batch has more beside its
// body than the header allows for, the header is raised; if not, the limit is
// cut to 95 % of the batch's estimated size, and full batches that are accepted
// then raise it halfway to the refused one, until it is within 1 % of that. Only
// the messages of a refused batch are packed and sent again. The corrections stay
// for the Estimator's life.
//
// For a service whose true limit is L by the same estimate, at most
// 1 + ln(Limit/L) / 0.051 refusals cut the limit and three narrow it down. As few
// correct the header, which is raised by at least a quarter. Batches that were in
// flight or filling meanwhile may each be refused once more, and so may batches of
// messages of another size, for which the header does not fit.
//
// A message whose estimated size is above the limit is sent alone, because the
// service decides; if the service refuses it, it is rejected.
type Estimator struct {
	service  SizeUnaware
	cfg      EstimatorConfig
	estimate sizeEstimate
}

var _ Transport = (*Estimator)(nil)

// NewEstimator makes a transport of a service that doesn't know sizes.
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
		return nil, fmt.Errorf("estimator: Limit %d, Header %d and MaxMessages %d must not be negative", c.Limit, c.Header, c.MaxMessages)
	}
	e.estimate = sizeEstimate{limit: c.Limit, header: c.Header}
	return e, nil
}

// Learned returns the current estimates, in bytes: how large a batch may be, and
// what a message has beside its body.
func (e *Estimator) Learned() (limit, header int) { return e.estimate.current() }

// Partitions implements [Transport].
func (e *Estimator) Partitions(ctx context.Context) ([]string, error) {
	return e.service.Partitions(ctx)
}

// NewBatch implements [Transport].
func (e *Estimator) NewBatch(_ context.Context, partition string) (Batch, error) {
	return &estimatedBatch{estimator: e, partition: partition}, nil
}

// Send implements [Transport].
func (e *Estimator) Send(ctx context.Context, batch Batch) (Outcome, error) {
	b := batch.(*estimatedBatch)
	return e.service.Send(ctx, b.partition, b.messages)
}

// estimatedBatch is a batch of estimated size.
type estimatedBatch struct {
	estimator *Estimator
	partition string
	messages  []Message
	size      int // bytes without the headers
}

func (b *estimatedBatch) Len() int { return len(b.messages) }

func (b *estimatedBatch) Bytes() int {
	_, header := b.estimator.Learned()
	return b.bytes(header)
}

func (b *estimatedBatch) bytes(header int) int { return b.size + len(b.messages)*header }

func (b *estimatedBatch) Add(m *Message) error {
	limit, header := b.estimator.Learned()
	n, size := len(b.messages)+1, b.size+b.estimator.cfg.Size(m)
	if n > 1 && (size+n*header > limit || n > b.estimator.cfg.MaxMessages) {
		return ErrTooLarge
	}
	b.messages, b.size = append(b.messages, *m), size
	return nil
}

func (b *estimatedBatch) refusedAsTooLarge() {
	largest := 0
	for i := range b.messages {
		largest = max(largest, b.estimator.cfg.Overhead(&b.messages[i]))
	}
	b.estimator.estimate.refusedAsTooLarge(largest, b.bytes)
}
