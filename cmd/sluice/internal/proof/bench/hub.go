//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

const hubName = "bench"

// serveHub runs the emulator's process. It keeps the events in memory.
func serveHub(ctx context.Context, p *parent, job []byte) error {
	var partitions int
	if err := json.Unmarshal(job, &partitions); err != nil {
		return err
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: partitions}}, nil)
	if err != nil {
		return err
	}
	defer srv.Close()
	if err := p.send(srv.ConnectionString()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// hub is an emulator in another process.
type hub struct {
	*child
	connection string
	partitions int
}

func startHub(ctx context.Context, partitions int) (*hub, error) {
	c, err := spawn(ctx, hubRole, partitions)
	if err != nil {
		return nil, err
	}
	h := &hub{child: c, partitions: partitions}
	if err := c.receive(&h.connection); err != nil {
		c.end()
		return nil, fmt.Errorf("start hub: %w", err)
	}
	return h, nil
}

// fill sends events of a size to every partition, in full batches, and returns
// how many a second the hub took.
func (h *hub) fill(ctx context.Context, each, size int) (perSecond float64, err error) {
	began := time.Now()
	err = h.eachPartition(ctx, func(ctx context.Context, client *azeventhubs.ProducerClient, partition string) error {
		options := &azeventhubs.EventDataBatchOptions{PartitionID: &partition}
		for n := 0; n < each; {
			batch, err := client.NewEventDataBatch(ctx, options)
			if err != nil {
				return err
			}
			for n < each && batch.AddEventData(&azeventhubs.EventData{Body: reading(n, size, began)}, nil) == nil {
				n++
			}
			if err := client.SendEventDataBatch(ctx, batch, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(each*h.partitions) / time.Since(began).Seconds(), err
}

// publishEvery is how long an event waits at most for others to share its
// batch while events are published at a rate.
const publishEvery = 5 * time.Millisecond

// publish sends so many events to each partition, rate a second to all of them
// together. Each carries the time at which its batch was made.
func (h *hub) publish(ctx context.Context, rate, size, each int) error {
	share := float64(rate) / float64(h.partitions)
	began := time.Now()
	return h.eachPartition(ctx, func(ctx context.Context, client *azeventhubs.ProducerClient, partition string) error {
		options := &azeventhubs.EventDataBatchOptions{PartitionID: &partition}
		tick := time.NewTicker(publishEvery)
		defer tick.Stop()
		for n := 0; n < each; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			due := min(each, int(share*time.Since(began).Seconds()))
			batch, err := client.NewEventDataBatch(ctx, options)
			if err != nil {
				return err
			}
			for now := time.Now(); n < due; n++ {
				if err := batch.AddEventData(&azeventhubs.EventData{Body: reading(n, size, now)}, nil); err != nil {
					return err
				}
			}
			if batch.NumEvents() == 0 {
				continue
			}
			if err := client.SendEventDataBatch(ctx, batch, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachPartition runs send for all partitions at the same time, with a
// connection each.
func (h *hub) eachPartition(ctx context.Context, send func(context.Context, *azeventhubs.ProducerClient, string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sending sync.WaitGroup
	for p := range h.partitions {
		sending.Go(func() {
			client, err := azeventhubs.NewProducerClientFromConnectionString(h.connection, hubName, nil)
			if err == nil {
				err = send(ctx, client, strconv.Itoa(p))
				client.Close(context.WithoutCancel(ctx))
			}
			if err != nil {
				cancel(fmt.Errorf("send to partition %d: %w", p, err))
			}
		})
	}
	sending.Wait()
	return context.Cause(ctx)
}
