package sender

import (
	"context"
	"errors"
)

// ErrTooLarge is what a message is refused with that doesn't fit into a batch.
var ErrTooLarge = errors.New("larger than the service takes in a batch")

// Transport is a service that takes batches. Its methods are called
// concurrently, but for one partition Send has one batch at a time.
type Transport interface {
	// Partitions lists the partitions, always the same, in the order in which
	// the service hashes keys to them.
	Partitions(ctx context.Context) ([]string, error)
	// NewBatch begins a batch for a partition. If it fails with an error that
	// wraps [ErrPermanent], it isn't called again.
	NewBatch(ctx context.Context, partition string) (Batch, error)
	// Send sends a batch that has messages, once, and tells its fate. The error
	// says why it isn't Accepted.
	Send(ctx context.Context, batch Batch) (Outcome, error)
}

// Batch is messages that travel together. It belongs to one goroutine.
type Batch interface {
	// Add puts a message behind the others. [ErrTooLarge] means that it doesn't
	// fit behind them, or, in an empty batch, not at all; any other error, that
	// it can't be sent. The batch is as before then. It keeps what m points to
	// at most, not m.
	Add(m *Message) error
	// Len is how many messages there are, Bytes the size of all as they are
	// sent, as far as that is known.
	Len() int
	Bytes() int
}

// Splitter is a transport whose batches may turn out to be too large.
type Splitter interface {
	// Split deals out the messages of a batch whose outcome was Oversize to
	// smaller ones, in order. It returns none if there is one message only.
	Split(batch Batch) []Batch
}

// PartitionMixer is a transport that may let messages of different partitions, and those
// without a key, share a batch.
type PartitionMixer interface {
	// MixesPartitions tells whether it does. Then [Config.Ordered] ends no batch but for
	// its size.
	MixesPartitions() bool
}

// Sizer is a batch that knows a message's size without taking it.
type Sizer interface {
	// Size is how many bytes a batch of this message alone has.
	Size(m *Message) (int, error)
}

// ErrPermanent is wrapped by errors of transports that trying again doesn't mend.
var ErrPermanent = errors.New("no use to try again")

// Outcome is what became of a batch.
type Outcome int

const (
	// OutcomeAccepted: the service has it.
	OutcomeAccepted Outcome = iota + 1
	// OutcomeBusy: the service hasn't taken it, but may the next time.
	OutcomeBusy
	// OutcomeUnknown: nobody knows; the link or the answer was lost.
	OutcomeUnknown
	// OutcomeTooLarge: the service hasn't taken it because it is too large.
	OutcomeTooLarge
	// OutcomeRejected: the service hasn't taken it and won't, for what is in it.
	OutcomeRejected
	// OutcomeDenied: the service takes nothing from this sender: its credentials, the
	// name, or the service's own state forbid it.
	OutcomeDenied
)
