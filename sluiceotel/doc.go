// Package sluiceotel exports what a consumer does to OpenTelemetry: metrics from the
// engine's observations, and spans of what handlers do, joined to the traces of
// the events' senders.
//
//	metrics, err := sluiceotel.New(&sluiceotel.Config{Group: source.Group()})
//	...
//	consumer, err := sluice.New(source, leases, delivery, &sluice.Config{Observer: metrics})
//
// # Metrics
//
// All have the attributes messaging.system (see [Config]), server.address (the namespace),
// messaging.destination.name (the hub or topic), messaging.consumer.group.name and, except for
// warnings, messaging.destination.partition.id, by OpenTelemetry's conventions for messaging,
// version 1.43. Counters begin at 0 with the process, those of what may never happen, such as dead
// letters, when a partition is acquired. Only the process that holds a partition exports its
// position and lag. What [Observer.Watch] gets is exported by every process that calls it: take the
// maximum.
//
//	messaging.client.consumed.messages  counter    events fetched from the log
//	messaging.process.duration          histogram  s, handler and commit of a batch; at least once: the move of the checkpoint
//	sluice.fetched.bytes                counter    bodies fetched
//	sluice.committed.messages           counter    events that the checkpoint passed
//	sluice.commits                      counter    by outcome: committed, fenced, unknown
//	sluice.repeats                      counter    of those, skipped as duplicates: sent more than once
//	sluice.filtered                     counter    events left out by a filter
//	sluice.passed                       counter    numbers of the log without an event, by reason
//	sluice.lag.messages                 gauge      events not done: after the checkpoint; at least once: after what is written
//	sluice.lag.time                     gauge      s, age of the oldest event that is not done, as far as it is known
//	sluice.checkpoint                   gauge      sequence number
//	sluice.lease.held                   gauge      1 while the partition is this process's
//	sluice.lease.epoch                  gauge
//	sluice.lease.renewal.duration       histogram  s
//	sluice.lease.lost                   counter
//	sluice.retries                      counter    attempts at an event that failed and are repeated, by error.type
//	sluice.dead_letters                 counter    by outcome: parked, deferred, redriven, redrive_failed, copied, copy_failed
//	sluice.dead_letters.stored          gauge      by status: dead, retry, discarded; needs [Observer.Watch]
//	sluice.written.records              counter    at least once: records that the sink wrote
//	sluice.written.cost                 counter    what the store charged (RU)
//	sluice.limiter.wait                 counter    seconds for which the rate, or the store's RU, held records back
//	sluice.inflight.messages            gauge      at least once: taken and not done
//	sluice.failures                     counter    outages of log, database and lease store; hooks; counts of dead letters; by error.type
//	sluice.stopped                      gauge      1 while a partition is halted, operator action required
//	sluice.stalled                      gauge      1 while something has held a partition up for too long
//	sluice.warnings                     gauge      partitions with a warning, by kind; needs [Observer.Watch]
//
// [Sender] exports what a sender sends, without consumer group and partition:
//
//	messaging.client.sent.messages       counter    messages that were sent, or with error.type were not accepted
//	messaging.client.operation.duration  histogram  s, sending of a batch, likewise
//
// # Traces
//
// [Trace] is middleware that makes a span of each batch, with a link to the
// trace of each event's sender; a batch of one event is in that trace. [TraceRecords] makes a span of each
// event of which AtLeastOnce makes records; [ContextOf] continues an event's own trace, and
// [TraceParent] is for what is sent on. The
// trace context is read from the application properties or headers traceparent
// and tracestate (W3C), or Diagnostic-Id, in which Azure's older clients wrote it.
// With the system kafka, the links of a batch and the span of an event have
// messaging.kafka.offset, messaging.kafka.message.key and
// messaging.kafka.message.tombstone.
package sluiceotel
