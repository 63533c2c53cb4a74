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

// hubJob is the work of the emulator's process.
type hubJob struct {
	Partitions     int
	RetentionBytes int64 // of each partition; 0: all events stay
}

// serveHub runs the emulator's process. It keeps the events in memory.
func serveHub(ctx context.Context, p *parent, job []byte) error {
	var j hubJob
	if err := json.Unmarshal(job, &j); err != nil {
		return err
	}
	srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: j.Partitions}}, &emulator.Config{RetentionBytes: j.RetentionBytes})
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
	return startHubOf(ctx, hubJob{Partitions: partitions})
}

func startHubOf(ctx context.Context, j hubJob) (*hub, error) {
	c, err := spawn(ctx, hubRole, j)
	if err != nil {
		return nil, err
	}
	h := &hub{child: c, partitions: j.Partitions}
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
