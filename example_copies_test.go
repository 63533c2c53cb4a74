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

// Dead letters are in the store, and each is copied at least once to where people look.
// With a sink of package sender that is a queue of Service Bus:
// sluice.CopyTo(sink, sender.DeadLetterMessages("sluice deadletters retry --config orders.yaml")).
func Example_copyDeadLetters() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "orders", Name: "$Default"}, 1)
	hub.Append("0", sluicetest.Bodies("a", "b", "c")...)

	handler := func(_ context.Context, b sluice.Batch) error {
		for i, e := range b.Events {
			if string(e.Body) == "b" {
				return &driver.EventError{Index: i, Err: driver.Reject(errors.New("the customer is unknown"))}
			}
		}
		return nil
	}
	copied := make(chan struct{})
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.Batches(new(sluicetest.Store), handler, nil), &sluice.Config{
		CopyDeadLetters: func(_ context.Context, dead []sluice.DeadLetter) error {
			for i := range dead {
				fmt.Printf("event %d, %s: %s\n", dead[i].Event.Sequence, dead[i].Event.Body, dead[i].Error)
			}
			return nil
		},
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindCopied {
				close(copied)
			}
		}),
	}))
	fmt.Println("error:", runUntil(ctx, consumer, copied))
	// Output:
	// event 1, b: the customer is unknown
	// error: <nil>
}
