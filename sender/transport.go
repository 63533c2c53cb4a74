package sender

import (
	"context"
	"errors"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// ErrTooLarge means that a message doesn't fit into a batch.
var ErrTooLarge = errors.New("too large for a batch")

// ErrPermanent is wrapped by errors of a [Transport] that a retry doesn't cure.
var ErrPermanent = errors.New("permanent error, not retried")

// Transport is a service that takes batches, such as [EventHub]. Its methods are
// called concurrently, but Send has one batch at a time for each partition.
type Transport interface {
	// Partitions returns the partitions: always the same, in the order in which
	// the service hashes keys to them, by the hash of Event Hubs or that of a
	// [KeyPartitioner].
	Partitions(ctx context.Context) ([]string, error)
	// NewBatch begins a batch for a partition. It isn't called again after an
	// error that wraps [ErrPermanent].
	NewBatch(ctx context.Context, partition string) (Batch, error)
	// Send sends a batch that has messages, once. The error says why the outcome
	// isn't OutcomeAccepted.
	Send(ctx context.Context, batch Batch) (Outcome, error)
}

// Batch is messages that are sent together. It is used by one goroutine at a
// time.
type Batch interface {
	// Add appends a message. [ErrTooLarge] means that it doesn't fit, which in an
	// empty batch means that it fits into none. Any other error means that it
	// can't be sent. After an error the batch is as before. Add may keep what m
	// points to, but not m.
	Add(m *Message) error
	// Len is how many messages the batch has.
	Len() int
	// Bytes is the size of the batch as it is sent, as far as it is known.
	Bytes() int
}

// Sizer is a [Batch] that knows a message's size without adding it.
type Sizer interface {
	// Size is how many bytes a batch of this message alone has.
	Size(m *Message) (int, error)
}

// PartitionMixer is a [Transport] whose batches may have messages of different
// partitions, and messages without a key among them.
type PartitionMixer interface {
	// MixesPartitions reports whether they may. If so, [Config.Ordered] ends a
	// batch only when it is full.
	MixesPartitions() bool
}

// KeyPartitioner is a [Transport] to a service with a hash of its own.
type KeyPartitioner interface {
	// PartitionOf returns to which of n partitions a key belongs: the index in
	// what Partitions returns.
	PartitionOf(key string, n int) int
}

// partitionOf returns the function that says to which of n partitions of a
// transport a key belongs.
func partitionOf(t Transport) func(key string, n int) int {
	if p, ok := t.(KeyPartitioner); ok {
		return p.PartitionOf
	}
	return partitionkey.EventHubsPartition
}

// Outcome is what became of a batch.
type Outcome int

const (
	// OutcomeAccepted means that the service has stored the batch.
	OutcomeAccepted Outcome = iota + 1
	// OutcomeBusy means that the service hasn't stored the batch, but a retry may
	// succeed.
	OutcomeBusy
	// OutcomeUnknown means that the link or the answer was lost: the batch may be
	// stored.
	OutcomeUnknown
	// OutcomeTooLarge means that the service hasn't stored the batch because it is
	// too large.
	OutcomeTooLarge
	// OutcomeRejected means that the service hasn't stored the batch and never
	// will, because of its content.
	OutcomeRejected
	// OutcomeDenied means that the service takes nothing from this sender: the
	// credentials, the entity's name or the entity's state forbid it.
	OutcomeDenied
)
