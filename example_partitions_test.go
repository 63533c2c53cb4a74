package sluice_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// Balanced consumers share the partitions of a topic. The second one to start
// takes its fair share: the first hands partitions over between two batches.
func ExamplePartitions_balanced() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "orders", Name: "$Default"}, 4)
	leases, store := new(sluicetest.Leases), new(sluicetest.Store) // shared by all processes
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		return tx.Insert("orders", string(e.Body))
	})

	type change struct {
		owner string
		n     int
	}
	changes := make(chan change)
	process := func(owner string) *sluice.Consumer {
		return must(sluice.New(hub, leases, sluice.Transactional(store, handler), &sluice.Config{
			Partitions:  sluice.Balanced,
			Owner:       owner,
			LeaseFor:    30 * time.Second, // the same in all processes, as RenewEvery
			RenewEvery:  100 * time.Millisecond,
			AssignEvery: 10 * time.Millisecond,
			Hooks: sluice.Hooks{
				Assigned: func(context.Context, sluice.Lease, sluice.Checkpoint) error {
					changes <- change{owner, 1}
					return nil
				},
				Released: func(context.Context, sluice.Lease, error) error {
					changes <- change{owner, -1}
					return nil
				},
			},
		}))
	}
	owned := map[string]int{}
	await := func(first, second int) {
		for owned["first"] != first || owned["second"] != second {
			select {
			case c := <-changes:
				owned[c.owner] += c.n
			case <-ctx.Done():
				fmt.Println(ctx.Err())
				return
			}
		}
		fmt.Println("first:", owned["first"], "second:", owned["second"])
	}

	first, second := process("first"), process("second")
	go first.Run(ctx)
	await(4, 0)
	go second.Run(ctx)
	await(2, 2)
	go first.Stop(ctx) // a graceful stop: the other takes the partitions over at once
	await(0, 4)
	go second.Stop(ctx)
	await(0, 0)
	// Output:
	// first: 4 second: 0
	// first: 2 second: 2
	// first: 0 second: 4
	// first: 0 second: 0
}
