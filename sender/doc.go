// Package sender sends any number of messages in batches that fit, to an event
// hub or to a queue or topic of Service Bus.
//
//	hub, err := sender.OpenEventHub(connectionString, "flights", nil)
//	...
//	report, err := sender.New(hub, nil).SendAll(ctx, messages)
//
// A [Sink] sends what a stage makes of events to the next stage's hub.
//
// # Batches
//
// A key has a partition, by the hash that the service itself uses, and a batch
// goes to a partition: so messages of thousands of keys share a batch, and each
// keeps its key. A partition's messages are packed in the order in which they
// come, each into the batch of the one before if it fits there. No way of
// cutting that order into batches needs fewer of them. Messages without a key
// have batches of their own, each full before the next is begun, or with
// [Config.Spread] one for each partition.
//
// Service Bus has no partitions to choose from, so sessions and keys are dealt
// out to lanes in the same way.
//
// Sizes are those of the encoded messages, headers included, against what the
// link negotiated. For services that don't tell, there is [Estimator].
//
// # Order
//
// The messages of a key or a session arrive in their order: a partition has one
// batch on its way at a time, and the next waits until that one's fate is known.
// Messages without a key have no order, unless [Config.Ordered] asks for one over
// all.
//
// # Failures
//
// A message that can't be sent, such as one that is too large, is left out, and
// the rest goes. A batch that the service is too busy for, or whose link was
// lost, is sent again after a pause, [Config.Attempts] times in all. If that
// fails, no further batch is begun, and the [Report] tells of each message
// whether it was accepted, was not, or may have been.
//
// A batch sent again after its answer was lost may be there twice. The report
// names those messages too, and [Config.NoDuplicates] has such a batch end the
// sending instead.
//
// # From stage to stage
//
// With a [Sink], [sluice.AtLeastOnce] feeds the next hub. It may send a message
// more than once: when an answer is lost, and when a stage dies before its
// checkpoint has passed what it sent. [Stamped] lets the next stage tell.
//
//	sink := sender.NewSink(next, nil)
//	defer sink.Close(ctx)
//	delivery := sluice.AtLeastOnce(store, store, sender.Stamped(clean), sink, nil)
//
// If the next stage is [sluice.Transactional], it drops repeats by their ids, in
// the transaction that has the effects, and each event of the first hub has its
// effect at the end of the chain exactly once. That rests on four things:
//
//   - The mapping is a function of the event alone: the same messages in the same
//     order at each repeat, for an id is the event's position and the message's
//     number. A clock, chance or a look into a table would give one id to two
//     different messages; which of them has its effect, nobody could tell.
//   - A repeat goes to the partition of the first. A message with a key goes by
//     that, one without by its id, over the partitions of the next hub: so their
//     number must not change while repeats may be under way. Where it must,
//     stop the stage with [sluice.Consumer.Stop], retry or discard its dead
//     letters, which would be sent elsewhere too, and change it then.
//   - A stamp belongs to one message. Whoever else passes on the properties of a
//     stamped event takes it off ([sluice.DropStamp]).
//   - The next stage reads the stamps. A queue of Service Bus that detects
//     duplicates drops them too, by the message's id, within its window of time.
//
// Ids are forgotten: a stamp carries the low watermark, the event up to which
// the sending stage's checkpoint is stored. Nothing up to there is sent again, so
// the next stage keeps only ids above it.
package sender
