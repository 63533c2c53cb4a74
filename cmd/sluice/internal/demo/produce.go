package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Record number i goes to partition i % partitions, so that it gets sequence
// number i / partitions there. So the partition's last sequence number says what was sent, also
// after a producer has failed: the producer needs no other state.
func recordAt(partition int, sequence int64) int64 {
	return sequence*partitions + int64(partition)
}

// share is how many of the first n records belong to a partition.
func share(partition int, n int64) int64 {
	return (n - int64(partition) + partitions - 1) / partitions
}

const (
	batchEvents = 500
	// slowEvery is the time between two records to each partition once the
	// bulk is sent.
	slowEvery = 200 * time.Millisecond
	// sendTries is how often in a row the hub, which is in this process, may
	// fail.
	sendTries = 5
)

// produceAll sends records until the hub has n, or more from before.
func (l *scenario) produceAll(ctx context.Context, n int64) error {
	return l.produce(ctx, func(p *producer) error { return p.upTo(ctx, share(p.partition, n)) })
}

// produceSlowly sends record after record until ctx ends.
func (l *scenario) produceSlowly(ctx context.Context) error {
	return l.produce(ctx, func(p *producer) error {
		tick := time.NewTicker(slowEvery)
		defer tick.Stop()
		for {
			if err := p.more(ctx, 1); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// produce runs fn for every partition at once.
func (l *scenario) produce(ctx context.Context, fn func(*producer) error) error {
	client, err := azeventhubs.NewProducerClientFromConnectionString(l.hub.ConnectionString(), l.name, &azeventhubs.ProducerClientOptions{
		ApplicationID: "sluice-demo",
		// A retry inside the client could send a batch twice.
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		return fmt.Errorf("connect to the hub: %w", err)
	}
	defer client.Close(context.WithoutCancel(ctx))
	errs := make([]error, partitions)
	var work sync.WaitGroup
	for i := range partitions {
		work.Go(func() {
			p := &producer{client: client, hub: l.parts.Source, record: l.record, partition: i}
			if errs[i] = p.resume(ctx); errs[i] == nil {
				errs[i] = fn(p)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// producer sends one partition's records.
type producer struct {
	client    *azeventhubs.ProducerClient
	hub       driver.Source
	record    func(i int64) (record, error)
	partition int
	next      int64 // sequence number that the next record will get
}

func (p *producer) id() string { return strconv.Itoa(p.partition) }

// resume asks the hub how far the sending has come.
func (p *producer) resume(ctx context.Context) error {
	b, err := p.hub.Bounds(ctx, p.id())
	if err != nil {
		return err
	}
	p.next = b.Last.Sequence + 1
	return nil
}

// upTo sends until the partition has n records.
func (p *producer) upTo(ctx context.Context, n int64) error {
	for p.next < n {
		if err := p.more(ctx, min(n-p.next, batchEvents)); err != nil {
			return err
		}
	}
	return nil
}

// more sends the next n records in one batch. After a failure it asks the
// partition whether they have arrived.
func (p *producer) more(ctx context.Context, n int64) error {
	goal := p.next + n
	for try := 1; p.next < goal; try++ {
		err := p.send(ctx, goal-p.next)
		if err == nil {
			p.next = goal
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if try == sendTries {
			return fmt.Errorf("send to partition %d: %w", p.partition, err)
		}
		select {
		case <-time.After(time.Second): // what is under way arrives by then
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.resume(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *producer) send(ctx context.Context, n int64) error {
	batch, err := p.client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(p.id())})
	if err != nil {
		return err
	}
	for i := range n {
		r, err := p.record(recordAt(p.partition, p.next+i))
		if err != nil {
			return err
		}
		if err := batch.AddAMQPAnnotatedMessage(r.message(), nil); err != nil {
			return err
		}
	}
	return p.client.SendEventDataBatch(ctx, batch, nil)
}

// message is the event. Its key goes with it in the annotation in which
// consumers find it: the partition was chosen already.
func (r *record) message() *azeventhubs.AMQPAnnotatedMessage {
	m := &azeventhubs.AMQPAnnotatedMessage{
		Body:       azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{r.body}},
		Properties: &azeventhubs.AMQPAnnotatedMessageProperties{ContentType: to.Ptr("application/json")},
	}
	if r.key != "" {
		m.MessageAnnotations = map[any]any{"x-opt-partition-key": r.key}
	}
	return m
}
