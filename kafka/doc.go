// Package kafka reads Apache Kafka, and what speaks its protocol, over the client library
// franz-go. Its [Source] is a [driver.Source] for one topic.
//
//	client, err := kafka.Open([]string{"127.0.0.1:9092"}, nil)
//	…
//	source, err := client.Source("flights", "to-postgres", nil)
//
// # Partitions, not groups
//
// The leases of the engine say which process reads which partition. So partitions are fetched
// directly, and Kafka's consumer groups, their rebalances and their committed offsets play no part:
// the group is a name under which leases, checkpoints and dead letters are stored.
//
// # One pool of connections
//
// A [Client] has the connections of a process: a few for each broker, whatever the number of topics
// and partitions. One request at a time fetches from a broker, for all partitions that it leads and
// whose readers have room. Each of them comes first in turn. A reader that holds
// [SourceConfig].PrefetchBytes is left out until Read has returned some.
//
// # Numbers and gaps
//
// An event's sequence number is the record's offset. Numbers may be missing: commit and abort
// markers, the records of aborted transactions, and what compaction has removed take numbers. So
// topics are described as Sparse, and a reader returns a marker where no event follows yet.
//
// A number is passed only for a reason: a control record, an aborted transaction, or a compacted
// topic (cleanup.policy). If a broker returns nothing though its log goes on, the fetch is repeated
// for 10 s. Then the numbers are passed if the topic is compacted and the broker names no later
// record; else the partition halts with a [driver.RetentionError] that names them, and is read
// again every 10 s. So the credentials of a consumer of a compacted topic need the operation
// DescribeConfigs on it.
//
// Transactions are read committed, unless [SourceConfig].ReadUncommitted is set: events come up to
// the last stable offset, which is where the oldest open transaction begins. What is behind a
// transaction that its producer has left open is not read, and not counted as lag, until the broker
// aborts it, after its transaction.timeout.ms; one that hangs, kafka-transactions.sh finds and
// aborts.
//
// # What a position keeps
//
// The offset of a position is a text such as "leader-epoch 7 from 1200": the epoch of the leader
// that wrote the record, and the first number of that epoch that was read. Open asks the leader of
// now where that epoch ends in its log (KIP-320). If that is before the position, the log lost
// records, because a replica without them was elected: that is a [driver.TruncatedError]. The log's
// beginning after the position is a [driver.RetentionError]. A reader is never set to another
// offset by itself.
//
// The incarnation of a topic is its topic id (KIP-516). Fetches name the id, so a reader never goes
// on in a topic that was deleted and created again. Brokers before 2.8 and Event Hubs have no topic
// ids; there the incarnation is [NoTopicID], and such a topic is noticed only if its log is
// shorter.
//
// # Event Hubs
//
// Event Hubs speaks Kafka's protocol at port 9093 of a namespace, over TLS, with [EntraID] or with
// [EventHubsConnectionString]. Package eventhub reads it over AMQP, with more guarantees.
package kafka
