//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// writer writes a batch and a position in one transaction.
type writer interface {
	write(ctx context.Context, partition string, events []*azeventhubs.ReceivedEventData) error
	close()
}

// runByHand is the loop that one writes without Sluice: for each partition
// receive, decode, insert together with the position, repeat. The client
// library prefetches meanwhile.
func runByHand(ctx context.Context, j *job, m *meter) error {
	var out writer = discard{}
	var err error
	switch scheme, path, _ := strings.Cut(j.Database, ":"); scheme {
	case "":
	case "sqlite":
		out, err = openSQLite(path, j.Raw)
	case "mariadb":
		out, err = openMariaDB(ctx, j.Database, j.Partitions, j.Raw)
	case "sqlserver":
		out, err = openSQLServer(ctx, j.Database, j.Partitions, j.Raw)
	default:
		out, err = openPostgres(ctx, j.Database, j.Partitions, j.Raw)
	}
	if err != nil {
		return err
	}
	defer out.close()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := newStartBarrier(j.Partitions, m)
	var loops sync.WaitGroup
	for p := range j.Partitions {
		loops.Go(func() {
			if err := loopByHand(ctx, j, m, strconv.Itoa(p), g, out); err != nil {
				cancel(fmt.Errorf("partition %d: %w", p, err))
			}
		})
	}
	loops.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return m.stop()
}

func loopByHand(ctx context.Context, j *job, m *meter, partition string, g *startBarrier, out writer) error {
	client, err := azeventhubs.NewConsumerClientFromConnectionString(j.Hub, hubName, azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	if err := g.wait(ctx); err != nil {
		return err
	}
	batch := cmp.Or(j.Batch, eventsPerBatch)
	receiver, err := client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{
		StartPosition: azeventhubs.StartPosition{Earliest: to.Ptr(true)}, Prefetch: int32(min(3*batch, 5000)),
	})
	if err != nil {
		return err
	}
	defer receiver.Close(context.WithoutCancel(ctx))
	for left := j.Events; left > 0; {
		events, err := receive(ctx, receiver, min(batch, left), j.Live)
		if err != nil {
			return err
		}
		if err := out.write(ctx, partition, events); err != nil {
			return err
		}
		m.committed()
		left -= len(events)
		if !j.Live {
			continue
		}
		for _, e := range events {
			if err := m.timed(e.SequenceNumber, *e.EnqueuedTime, e.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive returns the next events. The client library waits until it has as many as requested. So
// for live events, receive waits for one event and adds those that have arrived with it: with a
// context that has ended, the library returns what it holds.
func receive(ctx context.Context, receiver *azeventhubs.PartitionClient, most int, live bool) ([]*azeventhubs.ReceivedEventData, error) {
	if !live {
		return receiver.ReceiveEvents(ctx, most, nil)
	}
	events, err := receiver.ReceiveEvents(ctx, 1, nil)
	if err != nil || most == 1 {
		return events, err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	more, err := receiver.ReceiveEvents(ended, most-1, nil)
	if err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return append(events, more...), ctx.Err()
}

// record is a reading, decoded.
type record struct {
	Device   string    `json:"device"`
	Time     time.Time `json:"at"`
	Delay    int32     `json:"delay"`
	Distance int32     `json:"distance"`
	Payload  string    `json:"payload"`
}

var (
	columns    = []string{"hub_partition", "sequence_number", "device", "at", "delay", "distance", "payload"}
	rawColumns = []string{"hub_partition", "sequence_number", "body"}
)

// row makes a row of an event.
func row(partition string, e *azeventhubs.ReceivedEventData, raw bool) ([]any, error) {
	if raw {
		return []any{partition, e.SequenceNumber, string(e.Body)}, nil
	}
	var r record
	if err := json.Unmarshal(e.Body, &r); err != nil {
		return nil, fmt.Errorf("event %d: %w", e.SequenceNumber, err)
	}
	return []any{partition, e.SequenceNumber, r.Device, r.Time, r.Delay, r.Distance, r.Payload}, nil
}

type discard struct{}

func (discard) write(context.Context, string, []*azeventhubs.ReceivedEventData) error { return nil }
func (discard) close()                                                                {}
