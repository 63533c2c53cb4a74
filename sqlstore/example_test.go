package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// A handler that inserts a whole batch at once. A row that breaks a constraint
// is named, so that only its event becomes a dead letter.
func ExampleTx_Insert() {
	dir, err := os.MkdirTemp("", "sluice")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlstore.OpenSQLite(filepath.Join(dir, "colours.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.DB().Exec("CREATE TABLE colours (number INTEGER, name TEXT CHECK (name <> ''))"); err != nil {
		log.Fatal(err)
	}

	handler := sluice.Handler[*sqlstore.Tx](func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		rows := make([][]any, len(b.Events))
		for i, e := range b.Events {
			rows[i] = []any{e.Sequence, string(e.Body)}
		}
		err := tx.Insert(ctx, "colours", []string{"number", "name"}, rows)
		if refused, ok := errors.AsType[*sqlstore.RowError](err); ok {
			return &driver.EventError{Index: refused.Row, Err: driver.Reject(refused.Err)}
		}
		return err
	})

	group := driver.Group{Namespace: "example", Topic: "colours", Name: "$Default"}
	hub := sluicetest.NewHub(group, 1)
	hub.Append("0", sluicetest.Bodies("red", "", "blue")...)
	ctx, done := context.Background(), make(chan struct{})
	consumer, err := sluice.New(hub, store.Leases(), sluice.Transactional(store, handler), &sluice.Config{
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindCommitted && o.To.Sequence == 2 {
				close(done)
			}
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { <-done; consumer.Stop(ctx) }()
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}

	var names string
	if err := store.DB().QueryRow("SELECT group_concat(name) FROM colours").Scan(&names); err != nil {
		log.Fatal(err)
	}
	fmt.Println(names)
	deadLetters, err := store.List(ctx, group, driver.DeadLetterFilter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deadLetters {
		fmt.Printf("event %d: %s\n", d.Event.Sequence, d.Error)
	}
	// Output:
	// red,blue
	// event 1: constraint failed: CHECK constraint failed: name <> '' (275)
}
