package flights

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

// Record number i goes to partition i % Partitions, so that it gets sequence
// number i / Partitions there. So the partition's last sequence number says what was sent, also
// after a producer has failed: the producer needs no other state.
func recordAt(partition int, sequence int64) int64 {
	return sequence*Partitions + int64(partition)
}

// share is how many of the first n records belong to a partition.
func share(partition int, n int64) int64 {
	return (n - int64(partition) + Partitions - 1) / Partitions
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

// ProduceAll sends records until the hub has n, or more from before.
func (s *Scenario) ProduceAll(ctx context.Context, n int64) error {
	return s.Produce(ctx, func(p *Producer) error {
		_, err := p.SendShare(ctx, n)
		return err
	})
}

// produceSlowly sends record after record until ctx ends.
func (s *Scenario) produceSlowly(ctx context.Context) error {
	return s.Produce(ctx, func(p *Producer) error {
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

// Produce runs fn for every partition at once.
func (s *Scenario) Produce(ctx context.Context, fn func(*Producer) error) error {
	c, err := s.Dial()
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	errs := make([]error, Partitions)
	var work sync.WaitGroup
	for i := range Partitions {
		work.Go(func() {
			p := &Producer{connection: c, log: s.Source, record: s.Record, partition: i}
			if errs[i] = p.resume(ctx); errs[i] == nil {
				errs[i] = fn(p)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// Producer sends one partition's records.
type Producer struct {
	connection Connection
	log        driver.Source
	record     func(i int64) (Record, error)
	partition  int
	next       int64 // sequence number that the next record will get
}

func (p *Producer) id() string { return strconv.Itoa(p.partition) }

// resume asks the log how far the sending has come.
func (p *Producer) resume(ctx context.Context) error {
	for try := 1; ; try++ {
		b, err := p.log.Bounds(ctx, p.id())
		switch {
		case err == nil:
			p.next = b.Last.Sequence + 1
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case try == sendTries:
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits for what is under way to arrive.
func pause(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SendShare sends this partition's share of the first n records, and returns how many it has sent
// now.
func (p *Producer) SendShare(ctx context.Context, n int64) (sent int64, err error) {
	from := p.next
	for goal := share(p.partition, n); p.next < goal && err == nil; {
		err = p.more(ctx, min(goal-p.next, batchEvents))
	}
	return p.next - from, err
}

// more sends the next n records in one batch. After a failure it asks the
// partition whether they have arrived.
func (p *Producer) more(ctx context.Context, n int64) error {
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
		if err := pause(ctx); err != nil {
			return err
		}
		if err := p.resume(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *Producer) send(ctx context.Context, n int64) error {
	records := make([]Record, n)
	for i := range records {
		var err error
		if records[i], err = p.record(recordAt(p.partition, p.next+int64(i))); err != nil {
			return err
		}
	}
	return p.connection.Send(ctx, p.partition, records)
}

// Connection sends records to the partitions of a log. It is safe for concurrent use.
type Connection interface {
	// Send sends records to a partition, in one batch.
	Send(ctx context.Context, partition int, records []Record) error
	Close(ctx context.Context)
}

// hubConnection is a connection to a hub.
type hubConnection struct{ client *azeventhubs.ProducerClient }

func dialHub(connectionString, hub string) (Connection, error) {
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

// Send implements [Connection].
func (c hubConnection) Send(ctx context.Context, partition int, records []Record) error {
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

// Close implements [Connection].
func (c hubConnection) Close(ctx context.Context) { _ = c.client.Close(ctx) }

// message is the event. Its key goes with it in the annotation in which
// consumers find it: the partition was chosen already.
func (r *Record) message() *azeventhubs.AMQPAnnotatedMessage {
	m := &azeventhubs.AMQPAnnotatedMessage{
		Body:       azeventhubs.AMQPAnnotatedMessageBody{Data: [][]byte{r.Body}},
		Properties: &azeventhubs.AMQPAnnotatedMessageProperties{ContentType: to.Ptr("application/json")},
	}
	if r.Key != "" {
		m.MessageAnnotations = map[any]any{"x-opt-partition-key": r.Key}
	}
	return m
}
