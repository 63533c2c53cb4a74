//go:build unix

package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// publishEvery is how long an event waits at most for others to share its
// batch while events are published at a rate.
const publishEvery = 5 * time.Millisecond

// feed publishes events at a rate. Each event carries the time at which its batch was made.
type feed struct {
	rate  int                                    // events a second, of all partitions together
	size  int                                    // of a body in bytes
	ahead int                                    // this many events of each partition are published at once
	each  int                                    // events for each partition; 0: until the context ends
	body  func(n, size int, at time.Time) []byte // of event n of a partition
	sent  [maxPartitions]struct {
		atomic.Int64
		_ [56]byte
	} // acknowledged events of each partition
}

// total is how many events the hub has acknowledged.
func (f *feed) total() (n int64) {
	for p := range f.sent {
		n += f.sent[p].Load()
	}
	return n
}

// publish runs until all events are published, or without a number of events until ctx ends.
func (f *feed) publish(ctx context.Context, h *hub) error {
	share := float64(f.rate) / float64(h.partitions)
	began := time.Now()
	// A batch that is being sent when ctx ends is sent to its end: its events count.
	return h.eachPartition(context.WithoutCancel(ctx), func(sending context.Context, client *azeventhubs.ProducerClient, partition string) error {
		number, err := strconv.Atoi(partition)
		if err != nil {
			return err
		}
		early := float64(number) / float64(h.partitions) // so that the partitions take turns at a low rate
		tick := time.NewTicker(publishEvery)
		defer tick.Stop()
		for n := 0; f.each == 0 || n < f.each; {
			select {
			case <-tick.C:
			case <-sending.Done():
				return sending.Err()
			case <-ctx.Done():
				if f.each > 0 {
					return ctx.Err()
				}
				return nil
			}
			due := f.ahead + int(early+share*time.Since(began).Seconds())
			if f.each > 0 {
				due = min(due, f.each)
			}
			for n < due && ctx.Err() == nil {
				sent, err := f.send(sending, client, partition, n, due)
				if err != nil {
					return err
				}
				n += sent
				f.sent[number].Store(int64(n))
			}
		}
		return nil
	})
}

// send sends the events from n on that are due, or as many as fit into a batch.
func (f *feed) send(ctx context.Context, client *azeventhubs.ProducerClient, partition string, n, due int) (int, error) {
	batch, err := client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: &partition})
	if err != nil {
		return 0, err
	}
	now, first := time.Now(), n
	for ; n < due; n++ {
		err := batch.AddEventData(&azeventhubs.EventData{Body: f.body(n, f.size, now)}, nil)
		if errors.Is(err, azeventhubs.ErrEventDataTooLarge) && n > first {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return n - first, client.SendEventDataBatch(ctx, batch, nil)
}
