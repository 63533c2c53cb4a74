package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Hooks are called at the steps of a partition's assignment, for example to open
// and close what a partition needs.
func ExampleHooks() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "orders", Name: "$Default"}, 1)
	hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("orders", string(e.Body))
	})

	done := make(chan struct{})
	hooks := sluice.Hooks{
		Assigned: func(_ context.Context, lease sluice.Lease, _ sluice.Checkpoint) error {
			fmt.Printf("assigned %s, epoch %d\n", lease.Partition, lease.Epoch)
			return nil
		},
		Batch: func(_ context.Context, b sluice.Batch) error {
			fmt.Println("committed", len(b.Events), "events")
			close(done)
			return nil
		},
		Released: func(_ context.Context, lease sluice.Lease, cause error) error {
			fmt.Printf("released %s: %v\n", lease.Partition, cause)
			return nil
		},
	}
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.Transactional(new(sluicetest.Store), handler), &sluice.Config{Hooks: hooks}))
	fmt.Println("error:", runUntil(ctx, consumer, done))
	// Output:
	// assigned 0, epoch 1
	// committed 3 events
	// released 0: <nil>
	// error: <nil>
}

// An observer sees everything that the engine does, here to log what an operator
// must know. Package sluiceotel makes metrics and spans of observations, package
// health probes and alerts.
func ExampleObserver() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "orders", Name: "$Default"}, 1)
	last := hub.Append("0", sluicetest.Bodies("a", "broken", "c")...)
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		if string(e.Body) == "broken" {
			return errors.New("cannot read the order")
		}
		return tx.Insert("orders", string(e.Body))
	})

	logger := driver.ObserverFunc(func(o driver.Observation) {
		switch o.Kind {
		case driver.KindRetried, driver.KindParked:
			fmt.Printf("%s: partition %s, event %d, attempt %d: %v\n", o.Kind, o.Partition, o.To.Sequence, o.Attempt, o.Err)
		}
	})
	committed, reached := observeUntil(last)
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.Transactional(new(sluicetest.Store), handler), &sluice.Config{
		RetryMin: time.Millisecond, // between attempts; Attempts is 3 by default
		Observer: driver.Observers(logger, committed),
	}))
	fmt.Println("error:", runUntil(ctx, consumer, reached))
	// Output:
	// retried: partition 0, event 1, attempt 1: cannot read the order
	// retried: partition 0, event 1, attempt 2: cannot read the order
	// parked: partition 0, event 1, attempt 3: cannot read the order
	// error: <nil>
}
