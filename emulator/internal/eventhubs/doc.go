// Package eventhubs is an event broker with the semantics of Azure Event Hubs: event hubs divided
// into partitions, events with sequence numbers, offsets and enqueued times, consumer groups,
// readers with and without epochs (owner levels), and retention by time and size. It has no
// network protocol: the emulator serves it over package amqp. Package disklog stores the events.
//
// The semantics follow Azure's documentation and what its client libraries expect: up to five
// readers without an epoch per partition and consumer group, a reader with an epoch disconnects
// those with a lower or equal one (com.microsoft:epoch, amqp:link:stolen), partition keys are
// hashed as in package partitionkey, the offsets "-1" and "@latest" are the two ends of a
// partition.
//
// # One log per partition
//
// Every partition has its own log, and so its own fsync. One log for the whole broker would let
// more appends share an fsync, but readers of one partition would have to seek instead of reading
// on, every event would need an index entry, and retention could not remove whole files. It would
// not be faster either: fsyncs of several logs proceed in parallel. Eight appenders were measured
// to append as many single events to eight logs as to one, and up to twice as many batches of 100
// (BenchmarkAppend).
//
// # Goroutines and locks
//
// A broker with retention has one goroutine that removes old events (retention.go); everything
// else runs in the callers' goroutines. Broker.mu guards the map of hubs, readers.mu the readers
// attached to one partition. Neither is held during an append or a read.
//
// # Reading order
//
// broker.go, hub.go, partition.go, startposition.go, readers.go (epochs), retention.go; layout.go
// is the directory on disk.
package eventhubs
