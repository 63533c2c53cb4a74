// Package audit proves that nothing was lost and nothing doubled, by sequence
// number.
//
// A log numbers the events of a partition without gaps. So an audit needs no
// sampling and no statistics: for each event that the log holds it looks for
// its effect (a row that records the event's partition and sequence number) or
// its dead letter, and for a second one. What is behind the checkpoint must have
// exactly one of them; what is before it still waits.
//
//	report, err := audit.Run(ctx, source, ledger, group, nil)
//
// The log is read once, in one pass, by a consumer group of the audit's own: a
// broker lets no second reader into that of the pipeline. Rows and dead letters
// come sorted from the database, in one consistent view for each partition with
// its checkpoint, so that a pipeline that runs meanwhile does no harm. What the
// audit holds in memory doesn't grow with the events.
//
// Package telemetry looks for losses where only sampled counts are left.
package audit
