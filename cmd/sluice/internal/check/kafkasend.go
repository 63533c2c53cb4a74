package check

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// checkSend sends events to a partition, in batches, and reads them back.
func (k *topic) checkSend(ctx context.Context) Finding {
	if k.opts.Send == 0 {
		return skipped("not asked for: pass --send N")
	}
	partition := k.partitions[0]
	before, err := k.source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, 0)
	if err != nil {
		return failed("asking for the end of partition "+partition, err)
	}
	bodies := make([][]byte, k.opts.Send)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `{"sluice-check":%q,"n":%d}`, k.opts.ID, i)
	}
	if err := k.send(ctx, partition, bodies); err != nil {
		return failed("sending", err)
	}
	own := fmt.Appendf(nil, `{"sluice-check":%q`, k.opts.ID)
	var got [][]byte
	const most = 1_000_000 // others may send at the same time
	end, err := k.source.Seek(ctx, partition, driver.Start{Kind: driver.StartLatest}, 0)
	if err != nil {
		return failed("asking for the end of partition "+partition, err)
	}
	events, err := k.readAfter(ctx, partition, before, end.Sequence, most)
	if err != nil {
		return failed("reading what was sent", err)
	}
	for _, e := range events {
		if bytes.HasPrefix(e.Body, own) {
			got = append(got, e.Body)
		}
	}
	for i := range min(len(got), len(bodies)) {
		if !bytes.Equal(got[i], bodies[i]) {
			return differed("partition %s: in place of event %d came %s", partition, i, oneLine(fmt.Errorf("%q", got[i])))
		}
	}
	if len(got) != len(bodies) {
		return differed("partition %s: %d events were acknowledged, and %d can be read", partition, len(bodies), len(got))
	}
	return held("%d events were sent and read back in order", len(bodies))
}

// send sends bodies to a partition in order.
func (k *topic) send(ctx context.Context, partition string, bodies [][]byte) error {
	out, err := kafkasender.New(k.client, k.c.Topic, nil)
	if err != nil {
		return err
	}
	const perBatch = 100
	for len(bodies) > 0 {
		batch, err := out.NewBatch(ctx, partition)
		if err != nil {
			return err
		}
		n := min(len(bodies), perBatch)
		for _, body := range bodies[:n] {
			if err := batch.Add(&sender.Message{Body: body}); err != nil {
				return err
			}
		}
		if finding, err := out.Send(ctx, batch); finding != sender.OutcomeAccepted {
			return fmt.Errorf("batch was not accepted: %w", err)
		}
		bodies = bodies[n:]
	}
	return nil
}
