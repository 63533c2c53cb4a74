package sluice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// The handler uploads each batch as a file. A file that is uploaded again after a crash may hold
// other events than before, so its name says where it begins and ends, and a reader skips the lines
// that it has had: each begins with the event's number.
func ExampleBatches() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group := sluice.Group{Topic: "readings", Name: "$Default"}
	hub := sluicetest.NewHub(group, 1)
	last := hub.Append("0", sluicetest.Bodies("20.5", "21.0", "", "21.5")...)
	store := new(sluicetest.Store) // checkpoints and dead letters; in production pgstore, sqlstore or blobstore
	files := map[string]string{}

	handler := func(ctx context.Context, b sluice.Batch) error {
		var file bytes.Buffer
		for i, e := range b.Events {
			if len(e.Body) == 0 {
				// A dead letter; the batch comes again without it.
				return &driver.EventError{Index: i, Err: driver.Reject(errors.New("no reading"))}
			}
			fmt.Fprintf(&file, "%d %s\n", e.Sequence, e.Body)
		}
		first, last := b.Events[0].Sequence, b.Events[len(b.Events)-1].Sequence
		files[fmt.Sprintf("%s-%d-%d", b.Partition, first, last)] = file.String()
		return nil
	}
	committed, reached := observeUntil(last)
	consumer := must(sluice.New(hub, new(sluicetest.Leases), sluice.Batches(store, handler, nil), &sluice.Config{Observer: committed}))
	fmt.Println("error:", runUntil(ctx, consumer, reached))

	for name, content := range files {
		fmt.Printf("%s: %q\n", name, content)
	}
	for _, d := range must(store.List(ctx, group, sluice.DeadLetterFilter{})) {
		fmt.Printf("dead letter: event %d: %s\n", d.Event.Sequence, d.Error)
	}
	// Unordered output:
	// error: <nil>
	// 0-0-1: "0 20.5\n1 21.0\n"
	// 0-3-3: "3 21.5\n"
	// dead letter: event 2: no reading
}
