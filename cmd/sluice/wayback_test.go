package main_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	official "github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// processRest runs the official event processor over the hub until it has read the events up to
// last of each partition, from the checkpoints that it finds, or else from the end of the hub. It
// returns the numbers that it has read, by partition, in their order.
func processRest(t *testing.T, connection string, store *container.Client, last map[string]int64) map[string][]int64 {
	t.Helper()
	client, err := azeventhubs.NewConsumerClientFromConnectionString(connection, "flights", azeventhubs.DefaultConsumerGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background())
	blobs, err := official.NewBlobStore(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	processor, err := azeventhubs.NewProcessor(client, blobs, &azeventhubs.ProcessorOptions{LoadBalancingStrategy: azeventhubs.ProcessorStrategyGreedy, UpdateInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- processor.Run(ctx) }()
	var mu sync.Mutex
	read := make(map[string][]int64)
	var reading sync.WaitGroup
	for range last {
		p := processor.NextPartitionClient(ctx)
		if p == nil {
			t.Fatal("the processor got no partition")
		}
		reading.Go(func() {
			defer p.Close(context.Background())
			for at := int64(-1); at < last[p.PartitionID()]; {
				events, err := p.ReceiveEvents(ctx, 1, nil)
				if err != nil {
					t.Errorf("partition %s, after %d: %v", p.PartitionID(), at, err)
					return
				}
				at = events[0].SequenceNumber
				mu.Lock()
				read[p.PartitionID()] = append(read[p.PartitionID()], at)
				mu.Unlock()
			}
		})
	}
	reading.Wait()
	cancel()
	<-over
	return read
}

// TestWayBack: the official SDK's processor goes on from the mirrored checkpoints, at the next
// event after a graceful stop, and without a loss after kill -9.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for name, graceful := range map[string]bool{"graceful stop": true, "kill": false} {
		t.Run(name, func(t *testing.T) {
			url := databases["sqlite"](t)
			_, connection := serve(t, 2)
			server, store := storage(t, "checkpoints")
			env := environment(connection, url, "STORAGE="+server.ConnectionString())
			config := changed(t, "\npartitions:", "\nlease: {for: 3s, renew: 1s}\nbatch: 10\npartitions:",
				"    hub: flights\n", "    hub: flights\n    progress_blobs:\n      container: checkpoints\n      connection: ${STORAGE}\n      every: 1s\n")
			must(t, "", env, "check", "--connect", config)
			send := func(n int) { must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:n])) }
			send(200)
			if graceful {
				must(t, "", env, "run", config, "--until-caught-up")
			} else {
				victim := start(t, "", env, "run", config)
				blobs, err := official.NewBlobStore(store, nil)
				if err != nil {
					t.Fatal(err)
				}
				copied := func() (n int) {
					list, err := blobs.ListCheckpoints(t.Context(), strings.Split(strings.TrimPrefix(connection, "Endpoint=sb://"), ";")[0], "flights", azeventhubs.DefaultConsumerGroup, nil)
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range list {
						if *c.SequenceNumber > 0 {
							n++
						}
					}
					return n
				}
				await(t, "checkpoints of both partitions", func() bool { return copied() == 2 })
				db := openDatabase(t, url)
				send(2000) // which are beyond what is copied
				await(t, "more rows", func() bool { return count(t, db, countRows) > 300 })
				victim.kill()
			}
			send(100)
			h, last := lookAt(t, connection), map[string]int64{}
			for _, p := range h.ids {
				last[p] = h.last(p)
			}
			read := processRest(t, connection, store, last)
			next := map[string]int64{} // the first event without a row
			for _, e := range rows(t, openDatabase(t, url)) {
				next[e.partition] = max(next[e.partition], e.sequence+1)
			}
			for p, end := range last {
				switch first := read[p][0]; {
				case graceful && first != next[p]:
					t.Errorf("partition %s: the processor begins at %d, and the next event is %d", p, first, next[p])
				case first > next[p]:
					t.Errorf("partition %s: the processor begins at %d and has lost events from %d on", p, first, next[p])
				case first == 0:
					t.Errorf("partition %s: the processor begins at the hub's beginning", p)
				default:
					t.Logf("partition %s: %d events repeated", p, next[p]-first)
				}
				for i, n := range read[p] {
					if n != read[p][0]+int64(i) || n > end {
						t.Fatalf("partition %s: the processor read %v", p, read[p])
					}
				}
			}
		})
	}
}
