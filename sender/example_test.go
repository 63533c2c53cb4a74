package sender_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

func ExampleSender_SendAll() {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	ctx := context.Background()
	hub, err := sender.OpenEventHub(srv.ConnectionString(), "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)

	flights := func(yield func(sender.Message) bool) {
		for i := range 10_000 {
			m := sender.Message{Key: fmt.Sprintf("airport-%d", i%300), Body: fmt.Appendf(nil, `{"flight": %d}`, i)}
			if i == 5000 {
				m.Body = make([]byte, 2<<20)
			}
			if !yield(m) {
				return
			}
		}
	}
	report, err := sender.New(hub, nil).SendAll(ctx, flights)
	fmt.Println("accepted:", report.Accepted, "in", report.Batches, "batches")
	fmt.Println(err)
	// Output:
	// accepted: [{0 4999} {5001 9999}] in 4 batches
	// message 5000 (2097322 bytes) rejected: too large for a batch
}

func ExampleServiceBus() {
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders", Sessions: true}}, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	ctx := context.Background()
	queue, err := sender.OpenServiceBus(srv.ConnectionString(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer queue.Close(ctx)

	orders := func(yield func(sender.Message) bool) {
		for i := range 20_000 {
			if !yield(sender.Message{SessionID: fmt.Sprintf("customer-%d", i%300), Body: fmt.Appendf(nil, `{"order": %d}`, i)}) {
				return
			}
		}
	}
	report, err := sender.New(queue, nil).SendAll(ctx, orders)
	fmt.Println("accepted:", report.Accepted, err)
	// Output:
	// accepted: [{0 19999}] <nil>
}

// A Sink reports the result of each message. Usually [sluice.AtLeastOnce] submits
// the messages: see the example of Stamped.
func ExampleSink() {
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 4}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()

	ctx := context.Background()
	hub, err := sender.OpenEventHub(srv.ConnectionString(), "flights", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close(ctx)

	sink := sender.NewSink(hub, nil)
	var accepted, rejected atomic.Int64
	for i := range 100 {
		m := &sender.Message{Key: fmt.Sprintf("airport-%d", i%30), Body: fmt.Appendf(nil, `{"flight": %d}`, i)}
		if i == 50 {
			m.Body = make([]byte, 2<<20)
		}
		sink.Submit(ctx, m, func(r driver.WriteResult) {
			switch {
			case r.Err == nil:
				accepted.Add(1)
			case errors.Is(r.Err, sluice.ErrRejected):
				rejected.Add(1)
			default:
				log.Print(r.Err)
			}
		})
	}
	if err := sink.Close(ctx); err != nil { // waits for all results
		log.Fatal(err)
	}
	fmt.Println(accepted.Load(), "accepted,", rejected.Load(), "rejected")
	// Output:
	// 99 accepted, 1 rejected
}

// A stage sends the messages that it makes of events to the hub of the next
// stage. Each message carries the id of its event, so a transactional next stage
// drops duplicates.
func ExampleStamped() {
	var (
		source driver.Source // of the events, for example from package eventhub
		leases driver.LeaseStore
		store  interface { // for example from package sqlstore
			driver.CheckpointStore
			driver.DeadLetterQueue
		}
	)
	ctx := context.Background()
	next, err := sender.OpenEventHub(os.Getenv("EVENTHUB_CONNECTION_STRING"), "clean", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close(ctx)
	sink := sender.NewSink(next, nil)
	defer sink.Close(ctx)

	clean := func(_ context.Context, e *sluice.Event) ([]*sender.Message, error) {
		return []*sender.Message{{Key: e.Key, Body: bytes.TrimSpace(e.Body)}}, nil
	}
	delivery := sluice.AtLeastOnce(store, sender.Stamped(clean), sink, nil)
	stage, err := sluice.New(source, leases, delivery, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := stage.Run(ctx); err != nil {
		log.Print(err)
	}
}
