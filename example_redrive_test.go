package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// The store marks dead letters for a redrive while a consumer runs. The owner of
// the partition delivers them again. A dead letter that succeeds is removed.
func Example_redrive() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group := sluice.Group{Topic: "orders", Name: "$Default"}
	hub := sluicetest.NewHub(group, 1)
	hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
	store := new(sluicetest.Store)

	var repaired atomic.Bool
	sink := must(sluice.Workers(4, func(_ context.Context, e *sluice.Event) error {
		if string(e.Body) == "b" && !repaired.Load() {
			return driver.Reject(errors.New("the customer is unknown"))
		}
		return nil
	}))
	parked, marked, redriven := make(chan struct{}), make(chan struct{}), make(chan struct{})
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.AtLeastOnce(store, sluice.EventAsRecord, sink, nil), &sluice.Config{
		RedriveEvery: 10 * time.Millisecond,
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			switch o.Kind {
			case driver.KindParked:
				close(parked)
			case driver.KindRedriven:
				close(redriven)
			}
		}),
	}))
	go func() {
		defer close(marked)
		<-parked
		all := sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead}}
		for _, d := range must(store.List(ctx, group, all)) {
			fmt.Printf("event %d: %s\n", d.Event.Sequence, d.Error)
		}
		repaired.Store(true) // the customer exists now
		fmt.Println("marked:", must(store.Redrive(ctx, group, all, time.Now())))
	}()
	err := runUntil(ctx, consumer, redriven)
	<-marked
	fmt.Println("error:", err)
	fmt.Println("dead letters:", len(must(store.List(ctx, group, sluice.DeadLetterFilter{}))))
	// Output:
	// event 1: the customer is unknown
	// marked: 1
	// error: <nil>
	// dead letters: 0
}
