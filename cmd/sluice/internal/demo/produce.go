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
	c, err := l.dial()
	if err != nil {
		return err
	}
	defer c.close(context.WithoutCancel(ctx))
	errs := make([]error, partitions)
	var work sync.WaitGroup
	for i := range partitions {
		work.Go(func() {
			p := &producer{connection: c, log: l.parts.Source, record: l.record, partition: i}
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
	connection connection
	log        driver.Source
	record     func(i int64) (record, error)
	partition  int
	next       int64 // sequence number that the next record will get
}

func (p *producer) id() string { return strconv.Itoa(p.partition) }

// resume asks the log how far the sending has come.
func (p *producer) resume(ctx context.Context) error {
	b, err := p.log.Bounds(ctx, p.id())
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
	records := make([]record, n)
	for i := range records {
		var err error
		if records[i], err = p.record(recordAt(p.partition, p.next+int64(i))); err != nil {
			return err
		}
	}
	return p.connection.send(ctx, p.partition, records)
}

// connection sends records to the partitions of a log. It is safe for concurrent use.
type connection interface {
	// send sends records to a partition, in one batch.
	send(ctx context.Context, partition int, records []record) error
	close(ctx context.Context)
}

// hubConnection is a connection to a hub.
type hubConnection struct{ client *azeventhubs.ProducerClient }

func dialHub(connectionString, hub string) (connection, error) {
	client, err := azeventhubs.NewProducerClientFromConnectionString(connectionString, hub, &azeventhubs.ProducerClientOptions{
		ApplicationID: "sluice-demo",
		// A retry inside the client could send a batch twice.
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", err)
	}
	return hubConnection{client}, nil
}

// send implements [connection].
func (c hubConnection) send(ctx context.Context, partition int, records []record) error {
	batch, err := c.client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(strconv.Itoa(partition))})
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := batch.AddAMQPAnnotatedMessage(r.message(), nil); err != nil {
			return err
		}
	}
	return c.client.SendEventDataBatch(ctx, batch, nil)
}

// close implements [connection].
func (c hubConnection) close(ctx context.Context) { _ = c.client.Close(ctx) }

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
