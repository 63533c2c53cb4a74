package sluice_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// Two consumers of one process share a rate: together they send at most 200
// records in any second, retries included.
func ExampleNewRate() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rate := must(sluice.NewRate(200))
	var sent atomic.Int64
	sink := must(sluice.Workers(4, func(context.Context, *sluice.Event) error {
		sent.Add(1)
		return nil
	}))

	began := time.Now()
	errs := make(chan error)
	for _, topic := range []string{"orders", "payments"} {
		hub := sluicetest.NewHub(sluice.Group{Topic: topic, Name: "$Default"}, 1)
		last := hub.Append("0", sluicetest.Bodies(make([]string, 20)...)...)
		delivery := sluice.AtLeastOnce(new(sluicetest.Store), sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{
			Rate: rate, CheckpointEvery: 10 * time.Millisecond,
		})
		committed, reached := observeUntil(last)
		consumer := must(sluice.New(hub, new(sluicetest.Leases), delivery, &sluice.Config{Observer: committed}))
		go func() { errs <- runUntil(ctx, consumer, reached) }()
	}
	fmt.Println("errors:", <-errs, <-errs)
	fmt.Println("sent:", sent.Load(), "in 100 ms or more:", time.Since(began) >= 100*time.Millisecond)
	// A rate can be changed while it is in use.
	fmt.Println("error:", rate.Set(500))
	// Output:
	// errors: <nil> <nil>
	// sent: 40 in 100 ms or more: true
	// error: <nil>
}

// All processes of a consumer group keep one rate without talking to each other.
// Each has the share of the partitions that it owns: a process that owns two of
// four partitions sends at most 500 of these 1,000 records a second.
func ExampleNewClusterRate() {
	rate := must(sluice.NewClusterRate(1000)) // the same number in every process
	sink := must(sluice.Workers(4, func(context.Context, *sluice.Event) error { return nil }))
	delivery := sluice.AtLeastOnce(new(sluicetest.Store), sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{Rate: rate})
	hub := sluicetest.NewHub(sluice.Group{Topic: "orders", Name: "$Default"}, 4)
	_, err := sluice.New(hub, new(sluicetest.Leases), delivery, &sluice.Config{Partitions: 2})
	fmt.Println("error:", err)

	_, err = sluice.NewClusterRate(0)
	fmt.Println("error:", err)
	// Output:
	// error: <nil>
	// error: rate of 0 a second: must be from 1 to 1,000,000
}
