package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// documents is a store that can't join a transaction, such as a web service.
type documents struct {
	mu       sync.Mutex
	requests int
	stored   map[string]int // by id, the number of requests until the document was stored
}

func (d *documents) put(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	switch {
	case id == "":
		return driver.Reject(errors.New("a document needs an id")) // a dead letter, without another attempt
	case d.requests == 1:
		return driver.RetryAfter(errors.New("busy"), time.Millisecond) // another attempt, as often as needed
	}
	d.stored[id] = d.requests
	return nil
}

// Up to eight workers write events into a store of your own, in any order. The
// checkpoint passes an event only when it is written or is a dead letter.
func ExampleAtLeastOnce() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group := sluice.Group{Topic: "documents", Name: "$Default"}
	hub := sluicetest.NewHub(group, 1)
	last := hub.Append("0", sluicetest.Bodies("a", "b", "", "c")...)
	store := new(sluicetest.Store) // checkpoints and dead letters; in production pgstore, sqlstore or blobstore
	target := &documents{stored: map[string]int{}}

	sink := must(sluice.Workers(8, func(_ context.Context, e *sluice.Event) error {
		return target.put(string(e.Body))
	}))
	delivery := sluice.AtLeastOnce(store, sluice.EventAsRecord, sink, &sluice.AtLeastOnceConfig{
		CheckpointEvery: 10 * time.Millisecond,
	})
	committed, reached := observeUntil(last)
	consumer := must(sluice.New(hub, new(sluicetest.Leases), delivery, &sluice.Config{Observer: committed}))
	fmt.Println("error:", runUntil(ctx, consumer, reached))

	fmt.Println("documents:", len(target.stored))
	for _, d := range must(store.List(ctx, group, sluice.DeadLetterFilter{})) {
		fmt.Printf("dead letter: event %d: %s\n", d.Event.Sequence, d.Error)
	}
	// Output:
	// error: <nil>
	// documents: 3
	// dead letter: event 2: a document needs an id
}

// wordCounts is a sink of records of type string. Submit is called from several
// goroutines. A sink that waits for a network would queue the record, return, and
// call done later.
type wordCounts struct {
	mu     sync.Mutex
	counts map[string]int
}

func (w *wordCounts) Submit(_ context.Context, word string, done func(driver.WriteResult)) {
	w.mu.Lock()
	w.counts[word]++
	w.mu.Unlock()
	done(driver.WriteResult{})
}

// A sink of your own takes the records that a function makes of each event. Here a
// record is a word. The checkpoint passes an event when all its records are
// written. A sink that counts can count a record again after a crash: a real one
// makes its writes repeatable, for example as upserts.
func ExampleSink() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "lines", Name: "$Default"}, 1)
	last := hub.Append("0", sluicetest.Bodies("red green", "blue red")...)

	words := func(_ context.Context, e *sluice.Event) ([]string, error) {
		return strings.Fields(string(e.Body)), nil
	}
	sink := &wordCounts{counts: map[string]int{}}
	delivery := sluice.AtLeastOnce(new(sluicetest.Store), words, sink, &sluice.AtLeastOnceConfig{
		CheckpointEvery: 10 * time.Millisecond,
	})
	committed, reached := observeUntil(last)
	consumer := must(sluice.New(hub, new(sluicetest.Leases), delivery, &sluice.Config{Observer: committed}))
	fmt.Println("error:", runUntil(ctx, consumer, reached))
	fmt.Println(sink.counts)
	// Output:
	// error: <nil>
	// map[blue:1 green:1 red:2]
}
