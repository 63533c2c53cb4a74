// Package sluice reads partitioned logs such as Azure Event Hubs, and brings
// every event's effect into a SQL database exactly once, or into any other
// store at least once.
//
// A log gives its readers "events of partition P from position X on", and
// nothing else. A [Consumer] supplies the rest: who reads which partition
// (leases), what is done (checkpoints), what failed (dead letters).
//
//	source, err := eventhub.New(connectionString, "orders", nil)
//	store, err := pgstore.Open(ctx, databaseURL, nil)
//	handler := sluice.Each(func(ctx context.Context, tx pgx.Tx, e *sluice.Event) error {
//		_, err := tx.Exec(ctx, "INSERT INTO orders (id, body) VALUES ($1, $2)", e.MessageID, e.Body)
//		return err
//	})
//	consumer, err := sluice.New(source, store.Leases(), sluice.Transactional(store, handler), 4, nil)
//	err = consumer.Run(ctx)
//
// The guarantee is the name of the delivery: [Transactional] commits the
// handler's writes, the checkpoint and the dead letters in one transaction,
// fenced by the lease's epoch, so that effects are exactly once under crashes,
// paused processes, network cuts and lost replies. [AtLeastOnce] streams into
// stores that can't join such a transaction, such as Cosmos DB: many events in
// flight, completed in any order, at an exact rate, with a checkpoint that
// covers only what is written. [Replay] builds memory from the log, anew on
// every assignment. There is no call to move a checkpoint: progress
// follows from the handler returning nil, or the sink's word, and from that
// alone.
//
// # Ownership
//
// A consumer takes a fixed number of partitions, at most one a second, and
// keeps them while it lives; nobody takes them from it. [Balanced] consumers
// share the partitions out instead, and hand some over, between two batches, to
// those that come. A consumer that stops in good order gives its partitions back
// at once; when it dies they are free after the lease has run out.
//
// # Failures
//
// An event whose handler returns an error is tried [Config.Attempts] times; a
// rejected one ([Reject]) once. Then it is stored as a dead letter, in the same
// transaction that moves the checkpoint past it. An outage of the database is
// never held against an event. An event that kills the process is found by
// trying events one at a time, and becomes a dead letter too.
//
// # Reading the code
//
// consumer.go takes partitions, tenure.go keeps one, session.go reads it.
// deliver.go and apply.go deliver its events transactionally; stream.go,
// flight.go and clerk.go at least once. The seams to logs and stores are in
// source.go, lease.go, store.go, checkpoint.go, sink.go and deadletter.go.
package sluice
