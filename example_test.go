package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/sqlstore"
)

// A consumer reads a hub and fills a table in SQLite. Each event's row is written
// exactly once.
func Example() {
	hub := exampleHub("red", "green", "blue")
	defer hub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	source := must(eventhub.New(hub.ConnectionString(), "colours", nil))
	store := must(sqlstore.OpenSQLite(exampleFile(), nil))
	defer store.Close()
	must(store.DB().Exec("CREATE TABLE colours (name TEXT)"))
	handler := sluice.Each(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO colours (name) VALUES (?)", string(e.Body))
		return err
	})
	consumer := must(sluice.New(source, store.Leases(), sluice.Transactional(store, handler), nil))
	go stopWhen(ctx, cancel, func() bool { return count(store, "SELECT count(*) FROM colours") == 3 })
	if err := sluice.Run(ctx, time.Minute, consumer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(count(store, "SELECT count(*) FROM colours"), "rows")
	// Output: 3 rows
}

// Order is what the bodies of a hub hold, as JSON.
type Order struct {
	ID    string
	Total int
}

// A handler of typed events. An event that cannot be decoded becomes a dead letter
// at once, and so does an event that the handler rejects. The other events are
// not delayed.
func ExampleTyped() {
	hub := exampleHub(`{"id": "a", "total": 3}`, `{"id": "b", "total": -1}`, `not JSON`, `{"id": "c", "total": 4}`)
	defer hub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	source := must(eventhub.New(hub.ConnectionString(), "colours", nil))
	store := must(sqlstore.OpenSQLite(exampleFile(), nil))
	defer store.Close()
	must(store.DB().Exec("CREATE TABLE orders (id TEXT, total INTEGER)"))

	handler := sluice.Typed(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event, o Order) error {
		if o.Total < 0 {
			return driver.Reject(errors.New("total is negative"))
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES (?, ?)", o.ID, o.Total)
		return err
	})
	consumer := must(sluice.New(source, store.Leases(), sluice.Transactional(store, handler), nil))
	go stopWhen(ctx, cancel, func() bool { return count(store, "SELECT max(sequence_number) FROM sluice_checkpoints") == 3 })
	if err := sluice.Run(ctx, time.Minute, consumer); err != nil {
		log.Fatal(err)
	}

	for _, d := range must(store.List(context.Background(), source.Group(), sluice.DeadLetterFilter{})) {
		fmt.Printf("event %d: %s\n", d.Event.Sequence, d.Error)
	}
	fmt.Println("sum of the orders:", count(store, "SELECT sum(total) FROM orders"))
	// Output:
	// event 1: total is negative
	// event 2: decode: invalid character 'o' in literal null (expecting 'u')
	// sum of the orders: 7
}

// An operator marks dead letters for a redrive. The owner of the partition then
// delivers them again. Here no consumer owns the partition, so Consumer.Redrive
// does it.
func ExampleConsumer_Redrive() {
	hub := exampleHub("good", "odd", "good")
	defer hub.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	source := must(eventhub.New(hub.ConnectionString(), "colours", nil))
	defer source.Close(ctx)
	store := must(sqlstore.OpenSQLite(exampleFile(), nil))
	defer store.Close()
	must(store.DB().Exec("CREATE TABLE events (body TEXT)"))

	fixed := false
	handler := sluice.Each(func(ctx context.Context, tx *sqlstore.Tx, e *sluice.Event) error {
		if string(e.Body) == "odd" && !fixed {
			return driver.Reject(errors.New("not understood yet"))
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO events (body) VALUES (?)", string(e.Body))
		return err
	})
	newConsumer := func() *sluice.Consumer {
		return must(sluice.New(source, store.Leases(), sluice.Transactional(store, handler), nil))
	}
	consumer := newConsumer()
	go stopWhen(ctx, func() { _ = consumer.Stop(ctx) }, func() bool { return count(store, "SELECT max(sequence_number) FROM sluice_checkpoints") == 2 })
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(count(store, "SELECT count(*) FROM events"), "rows,", count(store, "SELECT count(*) FROM sluice_dead_letters"), "dead letter")

	fixed = true
	topic := must(source.Describe(ctx))
	marked := must(store.Redrive(ctx, topic.Group, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead}}, time.Time{}))
	applied, failed, err := newConsumer().Redrive(ctx)
	fmt.Println("marked", marked, "applied", applied, "failed again", failed, err)
	fmt.Println(count(store, "SELECT count(*) FROM events"), "rows,", count(store, "SELECT count(*) FROM sluice_dead_letters"), "dead letters")
	// Output:
	// 2 rows, 1 dead letter
	// marked 1 applied 1 failed again 0 <nil>
	// 3 rows, 0 dead letters
}

// exampleHub starts an embedded hub of one partition that holds the events.
func exampleHub(bodies ...string) *emulator.Server {
	server := must(emulator.Start([]emulator.Hub{{Name: "colours", Partitions: 1}}, nil))
	producer := must(azeventhubs.NewProducerClientFromConnectionString(server.ConnectionString(), "colours", nil))
	defer producer.Close(context.Background())
	batch := must(producer.NewEventDataBatch(context.Background(), nil))
	for _, body := range bodies {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: []byte(body)}, nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := producer.SendEventDataBatch(context.Background(), batch, nil); err != nil {
		log.Fatal(err)
	}
	return server
}

func exampleFile() string {
	return filepath.Join(must(os.MkdirTemp("", "sluice-example")), "events.db")
}

func count(store *sqlstore.Store, query string) (n int) {
	// The maximum of an empty table is NULL, which leaves n at 0.
	_ = store.DB().QueryRow(query).Scan(&n)
	return n
}

// stopWhen calls stop once a condition holds.
func stopWhen(ctx context.Context, stop func(), done func() bool) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !done() && ctx.Err() == nil {
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	stop()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
