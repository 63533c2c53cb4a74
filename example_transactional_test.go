package sluice_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/sqlstore"
)

// The handler takes a whole batch and adds up an account's payments with one
// statement. The new balance, the checkpoint and the dead letters commit in one
// transaction, so that no payment is counted twice or left out.
func ExampleTransactional() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hub := sluicetest.NewHub(sluice.Group{Topic: "payments", Name: "$Default"}, 1)
	last := hub.Append("0", sluicetest.Bodies("10", "20", "a few", "40")...)
	store := must(sqlstore.OpenSQLite(exampleFile(), nil))
	defer store.Close()
	must(store.DB().Exec("CREATE TABLE account (balance INTEGER)"))
	must(store.DB().Exec("INSERT INTO account (balance) VALUES (0)"))

	handler := func(ctx context.Context, tx *sqlstore.Tx, b sluice.Batch) error {
		sum := 0
		for i, e := range b.Events {
			amount, err := strconv.Atoi(string(e.Body))
			if err != nil {
				// Index says which event of the batch is wrong. The engine stores it as
				// a dead letter and delivers the others again without it.
				return &driver.EventError{Index: i, Err: driver.Reject(err)}
			}
			sum += amount
		}
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ?", sum)
		return err
	}
	committed, reached := observeUntil(last)
	consumer := must(sluice.New(hub, store.Leases(), sluice.Transactional(store, handler), &sluice.Config{Observer: committed}))
	fmt.Println("error:", runUntil(ctx, consumer, reached))

	fmt.Println("balance:", count(store, "SELECT balance FROM account"))
	fmt.Println("dead letters:", count(store, "SELECT count(*) FROM sluice_dead_letters"))
	// Output:
	// error: <nil>
	// balance: 70
	// dead letters: 1
}

// observeUntil returns an observer, and a channel that is closed when the checkpoint of a
// partition has reached last.
func observeUntil(last sluice.Position) (driver.Observer, <-chan struct{}) {
	reached := make(chan struct{})
	return driver.ObserverFunc(func(o driver.Observation) {
		if o.Kind == driver.KindCommitted && o.To.Sequence == last.Sequence {
			close(reached)
		}
	}), reached
}

// runUntil runs a consumer, and stops it gracefully when a channel is closed.
func runUntil(ctx context.Context, consumer *sluice.Consumer, reached <-chan struct{}) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-reached:
			stop()
		case <-ctx.Done():
		}
	}()
	return sluice.Run(ctx, time.Minute, consumer)
}
