package sender_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

func Example() {
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
	// message 5000 of 2097322 bytes: larger than the service takes in a batch
}
