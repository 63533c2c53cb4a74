// Package audit checks that no event was lost and none was processed twice, by
// sequence number.
//
// A log numbers the events of a partition. So an audit needs no sampling and no
// statistics. For each event in the log it looks for the event's
// effect, which is a row that records the event's partition and sequence number,
// or for its dead letter, and for duplicates of them. Every event from the
// beginning that the checkpoint records up to the checkpoint must have exactly
// one. Events before that beginning are not checked, and events after the
// checkpoint are waiting. Without a recorded beginning the partition is in
// doubt, whatever its effects look like: see [Doubt]. In a
// log whose numbers have gaps, such as Kafka's, what the log returns is what
// counts: a number that it does not return must have no effect, unless the topic
// is compacted.
//
//	report, err := audit.Run(ctx, source, ledger, group, nil)
//
// The log is read once, in one pass. The source must use a consumer group of the
// audit's own, because a broker allows only one reader of a partition in the
// pipeline's. The [Ledger] returns rows and dead letters sorted, in one
// consistent view of each partition with its checkpoint, so a pipeline may run
// during the audit. The audit's memory does not grow with the number of events.
package audit
