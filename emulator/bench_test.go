package emulator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

const benchPartitions = 4

// fill sends n events of 1 KB to every partition, in full batches, two on their way at a time.
func fill(b *testing.B, srv *emulator.Server, n int) {
	b.Helper()
	body := make([]byte, 1000)
	ctx := context.Background()
	var wg sync.WaitGroup
	for p := range benchPartitions {
		client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "bench", nil)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close(ctx)
		opts := &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(fmt.Sprint(p))}
		for _, share := range []int{n / 2, n - n/2} {
			wg.Go(func() {
				for sent := 0; sent < share; {
					batch, err := client.NewEventDataBatch(ctx, opts)
					if err != nil {
						b.Error(err)
						return
					}
					for sent < share && batch.AddEventData(&azeventhubs.EventData{Body: body}, nil) == nil {
						sent++
					}
					if err := client.SendEventDataBatch(ctx, batch, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

func perSecond(b *testing.B, events int) {
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkProduce(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			cfg := &emulator.Config{}
			if where == "disk" {
				cfg.Dir = b.TempDir()
			}
			srv := start(b, one("bench", benchPartitions), cfg)
			n := b.N/benchPartitions + 1
			b.SetBytes(1000)
			b.ResetTimer()
			fill(b, srv, n)
			perSecond(b, n*benchPartitions)
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			cfg := &emulator.Config{}
			if where == "disk" {
				cfg.Dir = b.TempDir()
			}
			srv := start(b, one("bench", benchPartitions), cfg)
			n := b.N/benchPartitions + 1
			fill(b, srv, n)
			b.SetBytes(1000)
			b.ResetTimer()
			var wg sync.WaitGroup
			for p := range benchPartitions {
				wg.Go(func() {
					pc := partition(b, consumer(b, srv, "bench", "$Default", ""), fmt.Sprint(p),
						&azeventhubs.PartitionClientOptions{StartPosition: earliest, Prefetch: 5000})
					for got := 0; got < n; {
						events, err := pc.ReceiveEvents(context.Background(), min(1000, n-got), nil)
						if err != nil {
							b.Error(err)
							return
						}
						got += len(events)
					}
				})
			}
			wg.Wait()
			perSecond(b, n*benchPartitions)
		})
	}
}
