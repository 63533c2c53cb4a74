// Package sender sends any number of messages, in batches that fit, to an event
// hub or to a queue or topic of Service Bus.
//
//	hub, err := sender.OpenEventHub(connectionString, "flights", nil)
//	...
//	report, err := sender.New(hub, nil).SendAll(ctx, slices.Values(messages))
//
// A [Sink] sends what one stage of a pipeline makes of events to the hub of the
// next stage.
//
// # Batches
//
// A key belongs to a partition, by the hash that the service itself uses, and a
// batch goes to a partition. So messages of thousands of keys share a batch, and
// each message keeps its key. The messages of a partition are packed in order,
// each into the current batch if it fits there, and otherwise into a new one. No
// other way to cut that order into batches needs fewer of them. Messages without
// a key have batches of their own, and fill one batch after the other, or with
// [Config.Spread] one for each partition.
//
// With Service Bus a sender can't choose partitions. There, sessions and keys are
// distributed over [ServiceBusConfig.Writers] in the same way.
//
// Sizes are those of the encoded messages, headers included, and the limit is
// what the link negotiated. For services whose clients don't know sizes, there is
// [Estimator].
//
// If the service refuses a batch as too large all the same, the limit is cut to
// 95 % of the batch's size, and the messages of that batch are packed again and
// sent. The lower limit stays for the life of the [Sender] or [Sink].
//
// A body that is too large for a message can go elsewhere, such as to blob storage, and
// its message refers to it: see [ClaimCheck].
//
// # Order
//
// Messages with the same key or session arrive in order: a partition has one
// batch in flight at a time, and the next batch waits for the outcome of that
// one. Messages without a key have no order, unless [Config.Ordered] asks for one
// order of all messages.
//
// # Failures
//
// A message that can't be sent, for example because it is too large, is rejected,
// and all others are sent. A batch is sent again after a pause if the service is
// busy or the link was lost, up to [Config.Attempts] times in all. If that fails,
// no further batch is sent, and the [Report] says of each message whether it was
// accepted, was not, or may have been.
//
// A batch that is sent again after its answer was lost may be stored twice. The
// report has those messages as possible duplicates. With [Config.NoDuplicates]
// such a batch ends the sending instead.
//
// # From stage to stage
//
// With a [Sink], sluice.AtLeastOnce feeds the next hub. It may send a message
// more than once: when an answer is lost, and when a stage ends before its
// checkpoint covers what it sent. [Stamped] lets the next stage recognise the
// duplicates.
//
//	sink := sender.NewSink(next, nil)
//	defer sink.Close(ctx)
//	delivery := sluice.AtLeastOnce(store, sender.Stamped(clean), sink, nil)
//
// If the next stage is sluice.Transactional, it drops duplicates by their ids,
// in the transaction that has the effects, and each event of the first hub has
// its effect at the end of the chain exactly once. That requires four things:
//
//   - The mapping is a function of the event alone. It returns the same messages
//     in the same order each time, because an id is the event's position and the
//     message's number. A mapping that uses a clock, random numbers or a lookup
//     could give two different messages the same id, and one of them would have
//     no effect.
//   - A duplicate goes to the partition of the first message. A message with a key
//     goes by the key, one without by its id, over the partitions of the next hub.
//     So the number of partitions must not change while messages may be sent
//     again. To change it, stop the stage with sluice.Consumer.Stop, redrive or
//     discard its dead letters, because they would go to other partitions too, and
//     then add the partitions.
//   - A stamp belongs to one message. Code that passes on the properties of a
//     stamped event by other means removes the stamp ([stamp.Drop]).
//   - The next stage believes the stamps: sluice.Config.StampsFrom names the topic
//     that this stage reads. With [SinkConfig].StampKey and the same key there, nobody
//     else can make a stamp that counts. A queue of Service Bus that detects
//     duplicates drops them too, by the message's id, within its time window.
//
// The next stage doesn't keep ids for ever: a stamp carries the low watermark,
// the event up to which the sending stage's checkpoint is stored. No event up to
// there is sent again, so the next stage keeps only the ids above it.
package sender
