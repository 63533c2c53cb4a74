//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
)

// runReader reads all partitions with a Source, and does nothing with the events: what a receiver
// costs.
func runReader(ctx context.Context, j *job, m *meter) error {
	receiver := eventhub.SDKReceiver
	if j.Contender == ownContender {
		receiver = eventhub.OwnReceiver
	}
	source, err := eventhub.New(j.Hub, hubName, &eventhub.Config{Receiver: receiver})
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := newStartBarrier(j.Partitions, m)
	var loops sync.WaitGroup
	for p := range j.Partitions {
		loops.Go(func() {
			if err := readPartition(ctx, source, j, m, strconv.Itoa(p), g); err != nil {
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

func readPartition(ctx context.Context, source *eventhub.Source, j *job, m *meter, partition string, g *startBarrier) error {
	if err := g.wait(ctx); err != nil {
		return err
	}
	reader, err := source.Open(ctx, partition, driver.Origin, 1)
	if err != nil {
		return err
	}
	defer reader.Close(context.WithoutCancel(ctx))
	for next := int64(0); next < int64(j.Events); {
		events, err := reader.Read(ctx, eventsPerBatch)
		if err != nil {
			return err
		}
		m.committed()
		for _, e := range events {
			if e.Sequence != next || len(e.Body) == 0 {
				return fmt.Errorf("event %d with %d bytes came where %d was next", e.Sequence, len(e.Body), next)
			}
			next++
		}
	}
	return nil
}
