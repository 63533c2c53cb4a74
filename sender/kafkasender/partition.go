package kafkasender

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partition is a partition as an idempotent producer sees it. It has a producer id of its own, so
// that a new epoch of one partition changes nothing for another.
type partition struct {
	number int32
	turn   chan struct{} // held while a batch is sent; guards the fields below

	id       int64 // of the producer; -1: none yet
	epoch    int16
	sequence int32 // of the next record
	// unsettled is a batch that has the number sequence and was not accepted; nil: none.
	unsettled *recordBatch
}

// batchNumber is what a broker recognizes a batch by that it has stored.
type batchNumber struct {
	producer int64
	epoch    int16
	sequence int32 // of the first record
}

// give gives a batch its number. A batch that was not accepted keeps the one that it has, unless
// another batch came after it. That batch never gets the same number, even if the broker said that
// it refused the one before: a log that had stored it would take the two for one.
func (p *partition) give(ctx context.Context, t *Transport, b *recordBatch) error {
	if p.unsettled != nil && p.unsettled != b {
		p.raiseEpoch()
	}
	if p.id < 0 {
		id, epoch, err := t.producerID(ctx)
		if err != nil {
			return err
		}
		p.id, p.epoch, p.sequence = id, epoch, 0
	}
	if n := (batchNumber{p.id, p.epoch, p.sequence}); b.sent.number != n || !b.sent.ready {
		b.sent.setNumber(n)
	}
	p.unsettled = b
	return nil
}

// raiseEpoch makes the brokers refuse the batches so far that they have not stored, as soon as they
// have stored one of the new epoch.
func (p *partition) raiseEpoch() {
	p.unsettled, p.sequence = nil, 0
	if p.epoch == math.MaxInt16 {
		p.id = -1 // another producer
		return
	}
	p.epoch++
}

// settle records that a batch was stored.
func (p *partition) settle(b *recordBatch) {
	p.unsettled = nil
	if left := math.MaxInt32 - p.sequence; left >= int32(b.count) {
		p.sequence += int32(b.count)
	} else {
		p.sequence = int32(b.count) - left - 1 // the numbers begin again with 0
	}
}

// producerID asks for the id of a new producer.
func (t *Transport) producerID(ctx context.Context) (int64, int16, error) {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.ProducerID, request.ProducerEpoch = -1, -1
	answer, err := request.RequestWith(ctx, t.requests)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("get a producer id: %w", err)
	}
	return answer.ProducerID, answer.ProducerEpoch, nil
}
