// Package sluice consumes partitioned logs such as Azure Event Hubs. It brings every
// event's effect into a SQL database exactly once, or into any other store at least
// once.
//
// A log gives its readers "events of partition P from position X on", and nothing else.
// A [Consumer] supplies the rest: which process reads which partition (leases), what is
// done (checkpoints), what failed (dead letters).
//
//	source, err := eventhub.New(connectionString, "orders", nil)
//	store, err := pgstore.Open(ctx, databaseURL, nil)
//	handler := sluice.Each(func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
//		_, err := tx.Exec(ctx, "INSERT INTO orders (id, body) VALUES ($1, $2)", e.MessageID, e.Body)
//		return err
//	})
//	consumer, err := sluice.New(source, store.Leases(), sluice.Transactional(store, handler), nil)
//	err = sluice.Run(ctx, 20*time.Second, consumer)
//
// # Deliveries
//
// The name of the delivery is the guarantee:
//
//   - [Transactional] commits the handler's writes, the checkpoint and the dead letters
//     in one transaction, fenced by the lease's epoch. Effects are exactly once under
//     crashes, paused processes, network cuts and lost replies.
//   - [Batches] calls a handler with one batch at a time for each partition, at least once
//     and in order, and moves the checkpoint when it has returned. It needs no SQL.
//   - [AtLeastOnce] streams into stores that cannot join such a transaction, such as
//     Cosmos DB: many events in flight, completed in any order, at an exact rate, with a
//     checkpoint that covers only what is written.
//   - [Replay] builds memory from the log on every assignment, without checkpoints.
//
// There is no call to move a checkpoint. It moves when the handler returns nil or the
// sink reports a success, and for no other reason.
//
// # Ownership
//
// A consumer acquires the number of partitions that [Config.Partitions] states, at most
// one a second, and keeps them while it runs; no other consumer takes them. [Balanced]
// consumers divide the partitions evenly and hand some over, between two batches, when
// another one joins. A consumer that stops gracefully releases its partitions at once.
// When it dies they are free after the lease has expired.
//
// # Failures
//
// An event whose handler returns an error is tried [Config.Attempts] times; a rejected
// one ([driver.Reject]) once. Then it is stored as a dead letter, in the same transaction that
// moves the checkpoint past it. An outage of the database never counts against an event.
// An event that kills the process is found by trying fewer and fewer events at a time, and becomes
// a dead letter too. A dead letter can be redriven: its handler runs again, and it is
// removed in the same transaction.
//
// # Reading the code
//
// This package is the door: configuration, the constructors of deliveries, and what handlers
// return. The engine is below internal/engine, whose documentation names its rooms. The seams to
// logs and stores are in package driver, with the errors and observations that cross them; stamps
// of messages are in package stamp.
package sluice
