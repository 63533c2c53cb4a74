// Command peers measures Sluice on Kafka beside what else moves events from Kafka to
// PostgreSQL, in one run, by turns, and counts what each of them loses and doubles
// when it is killed.
//
//	make bench-peers                                           # installs what it needs, then runs all
//	make bench-peers PEERS_FLAGS='-docs docs/performance.md'   # also replaces the tables of the documentation
//	go run ./cmd/sluice/internal/proof/peers -only 'Sluice|loop' -kills 0
//
// The peers are a loop written by hand over the same clients (consumer/loop.go),
// Redpanda Connect, Kafka Connect with Debezium's JDBC sink, Confluent's parallel consumer and
// Watermill. Their programs are below programs/, in modules of their own that go.work does
// not name, and in config/; scripts/install-peers builds them.
//
// # Speed
//
// A real broker holds events of 1 KB in four partitions. Each run has a process, a
// consumer group and a database of its own, and writes partition, offset and body of
// each event to a table without an index. PostgreSQL stores the time of each commit,
// so the clock is the database's, and the same for all: it runs from the moment when a
// quarter of the rows and some of every partition are there to the last commit. So
// start-up, the forming of a group and most of what Java compiles do not count, neither
// as time nor as processor time. A run ends when all rows are there, or after a time. It
// must be long beside what a consumer reads ahead, which is read before the clock runs.
//
// # Kills
//
// The topic's events are written in transactions, of which a tenth is aborted. Each
// consumer is killed by SIGKILL several times on its way and started again. Afterwards
// the rows are compared with what a reader of committed events finds in the topic:
// events without a row are lost, events with several are doubled, and rows of other
// events are of aborted transactions.
//
// Reading order: main.go, peer.go, speed.go, kills.go; then consumer/ and config/.
package main
