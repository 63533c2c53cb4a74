package pgstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pgstore"
	"github.com/sluice-go/sluice/sluicetest"
)

// A handler that writes two tables through pgx. The transaction is a real
// pgx.Tx, so what is made for one (sqlc's queries, River's InsertTx) takes it;
// only the commit is not the handler's.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(driver.Group{Namespace: "example", Topic: "orders", Name: "$Default"}, 1) // your event hub
	hub.Append("0", sluicetest.Bodies(`{"ID": 1, "Items": ["tea", "milk"]}`, `{"ID": 2, "Items": ["bread"]}`)...)

	store, err := pgstore.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Pool().Exec(ctx, "CREATE TABLE orders (id bigint); CREATE TABLE items (order_id bigint, name text)"); err != nil {
		log.Fatal(err)
	}

	type order struct {
		ID    int64
		Items []string
	}
	handler := sluice.Typed(func(ctx context.Context, tx pgx.Tx, e *driver.Event, o order) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", o.ID); err != nil {
			return err
		}
		var rows [][]any
		for _, name := range o.Items {
			rows = append(rows, []any{o.ID, name})
		}
		return pgstore.Insert(ctx, tx, "items", []string{"order_id", "name"}, rows) // COPY
	})
	consumer, err := sluice.New(hub, store.Leases(), sluice.Transactional(store, handler), nil)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()

	var orders, items int
	for items < 3 && ctx.Err() == nil {
		if err := store.Pool().QueryRow(ctx, "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM items)").Scan(&orders, &items); err != nil {
			log.Fatal(err)
		}
	}
	if err := consumer.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders, "orders of", items, "items") // 2 orders of 3 items
}
