package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/outbox"
	"github.com/sluice-go/sluice/sluicetest"
)

// A program writes a row and a message in one transaction, and a consumer gets the message. What
// was rolled back never existed.
func ExampleSource() {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "orders.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	box, err := outbox.New(db, outbox.SQLite, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Create(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id TEXT)"); err != nil {
		log.Fatal(err)
	}
	place := func(id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec("INSERT INTO orders (id) VALUES (?)", id); err != nil {
			return err
		}
		if err := box.Add(ctx, tx, outbox.Message{Key: id, Body: []byte("placed " + id)}); err != nil {
			return err
		}
		if id == "b" {
			return nil // rolls back
		}
		return tx.Commit()
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := place(id); err != nil {
			log.Fatal(err)
		}
	}

	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		fmt.Println(e.Sequence, string(e.Body))
		return nil
	})
	done := make(chan struct{})
	consumer, err := sluice.New(box, new(sluicetest.Leases), sluice.Transactional(new(sluicetest.Store), handler), &sluice.Config{
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindCommitted && o.To.Sequence == 1 {
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
	// Output:
	// 0 placed a
	// 1 placed c
}
