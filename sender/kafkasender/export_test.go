package kafkasender

import (
	"bytes"
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-go/sluice/sender"
)

// SetSequence sets the number of a partition's next record.
func SetSequence(t *Transport, partition int, sequence int32) {
	list, err := t.lookUpPartitions(t.requests.Context())
	if err != nil {
		panic(err)
	}
	p := list[partition]
	if p.id, p.epoch, err = t.producerID(t.requests.Context()); err != nil {
		panic(err)
	}
	p.sequence = sequence
}

// Late returns a function that sends a batch once more as it is now: as a request that comes late.
func Late(t *Transport, batch sender.Batch) func(ctx context.Context) error {
	b := batch.(*recordBatch)
	b.seal()
	encoded := bytes.Clone(b.withHeader())
	return func(ctx context.Context) error {
		l, err := t.lookUpLeaders(ctx, nil)
		if err != nil {
			return err
		}
		answer, _, err := t.produce(ctx, l.brokers[b.partition.number], b.partition.number, encoded)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.ErrorCode)
	}
}
