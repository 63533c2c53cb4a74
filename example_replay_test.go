package sluice_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// The process keeps the last price of each article in memory. After every start it
// reads the last 24 hours of the log again, then follows it. No database is
// needed, only leases.
func ExampleReplay() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "prices", Name: "$Default"}, 1)
	hub.Append("0",
		&sluice.Event{Key: "apples", Body: []byte("1.20")},
		&sluice.Event{Key: "pears", Body: []byte("1.50")},
		&sluice.Event{Key: "apples", Body: []byte("1.10")},
	)

	prices := map[string]map[string]string{} // by partition; a process with several partitions needs a lock
	complete := make(chan struct{})
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.Replay(sluice.Replayer{
		Apply: func(_ context.Context, b sluice.Batch) error {
			if prices[b.Partition] == nil {
				prices[b.Partition] = map[string]string{}
			}
			for _, e := range b.Events {
				prices[b.Partition][e.Key] = string(e.Body)
			}
			return nil
		},
		CaughtUp: func(_ context.Context, lease sluice.Lease) error {
			fmt.Println("caught up:", prices[lease.Partition])
			close(complete) // from now on the prices are complete
			return nil
		},
		Released: func(lease sluice.Lease, cause error) {
			fmt.Println("released:", cause)
			delete(prices, lease.Partition)
		},
	}), &sluice.Config{Start: sluice.Ago(24 * time.Hour)}))
	fmt.Println("error:", runUntil(ctx, consumer, complete))
	// Output:
	// caught up: map[apples:1.10 pears:1.50]
	// released: <nil>
	// error: <nil>
}
