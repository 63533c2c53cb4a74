package sender

import (
	"context"
	"math"
)

// packer packs messages into batches, for a [Sender] or a [Sink]. One rule holds
// for a batch that the service refuses as too large: send corrects the estimate
// of what fits, and the caller packs the messages of that batch again, up to
// packedBatch.fewer in a batch. What a packer has learned stays for its life.
type packer struct {
	transport Transport
	limit     sizeEstimate // of batches that know their size; an [Estimator] has its own
	// partitionOf says to which of n partitions a key belongs.
	partitionOf func(key string, n int) int
}

func newPacker(transport Transport) *packer {
	return &packer{transport: transport, limit: sizeEstimate{limit: math.MaxInt}, partitionOf: partitionOf(transport)}
}

// newBatch begins a batch for a partition.
func (p *packer) newBatch(ctx context.Context, partition string) (*packedBatch, error) {
	b, err := p.transport.NewBatch(ctx, partition)
	if err != nil {
		return nil, err
	}
	return &packedBatch{Batch: b, packer: p}, nil
}

// send sends a batch once, and learns from a refusal as too large.
func (p *packer) send(ctx context.Context, b *packedBatch) (Outcome, error) {
	outcome, err := p.transport.Send(ctx, b.Batch)
	e, estimated := b.Batch.(*estimatedBatch)
	switch {
	case outcome == OutcomeAccepted && estimated:
		e.estimator.estimate.accepted(e.bytes)
	case outcome != OutcomeTooLarge || b.Len() < 2:
	case estimated:
		e.refusedAsTooLarge()
	default:
		p.limit.refusedAsTooLarge(0, func(int) int { return b.Bytes() })
	}
	return outcome, err
}

// packedBatch is a transport's batch, filled up to what its packer has learned.
type packedBatch struct {
	Batch
	packer *packer
}

// Add is [Batch.Add] with the learned limit. A batch that is no [Sizer] may
// exceed that by what its last message has beside the body.
func (b *packedBatch) Add(m *Message) error {
	if b.packer.limit.corrected.Load() && b.Len() > 0 {
		limit, _ := b.packer.limit.current()
		if size := b.Bytes(); size >= limit || size+sizeIn(b.Batch, m) > limit {
			return ErrTooLarge
		}
	}
	return b.Batch.Add(m)
}

// fewer is how many messages the next batch may have at most if this one was
// too large: 95 % of them. So packing again makes progress even if the batch's
// size is unknown or the correction was too small.
func (b *packedBatch) fewer() int { return b.Len() * 95 / 100 }

// sizeIn is the size of a batch of this message alone, or of the message's body
// if the batch is no [Sizer].
func sizeIn(batch Batch, m *Message) int {
	if sizer, ok := batch.(Sizer); ok {
		if n, err := sizer.Size(m); err == nil {
			return n
		}
	}
	return len(m.Body)
}
