// Package kafkasender sends messages to a topic of Kafka: a [sender.Transport] over
// a client of package kafka.
//
//	client, err := kafka.Open([]string{"127.0.0.1:9092"}, nil)
//	...
//	topic, err := kafkasender.New(client, "flights", nil)
//	report, err := sender.New(topic, nil).SendAll(ctx, messages)
//
// # What becomes of a message
//
// A key goes to the partition to which Kafka's own clients send it by default (MurmurHash2). The
// body is the value, and a nil body is a null value. Everything else is headers:
//
//	Headers         headers in the same order
//	MessageID       message-id
//	CorrelationID   correlation-id
//	ContentType     content-type, as in the Kafka binding of CloudEvents
//	Properties      a header for each, by name in ascending order
//
// A property wins over a header of the same name, and so do the three fields where they are not
// empty. A header's value is the bytes of a string or a []byte, and otherwise a text: numbers are
// decimal, a bool is true or false, a time is as in RFC 3339, and nil is a null value. The stamps
// of sender.Stamped are properties, so sluice-id and the others are headers.
//
// The time of a message is when it was added to its batch.
//
// # Batches
//
// A batch of the sender is one record batch in the log, compressed by snappy unless
// [Config.Compression] says otherwise. Its size is exact before compression. It is sent to the
// partition's leader with acks=all, so that it is accepted once all replicas in sync have it.
//
// # Lost answers
//
// Each partition has a producer id, and each batch a sequence number, as Kafka's idempotent producers
// have. If the answer to a batch is lost, Send repeats it with the same number until its context
// ends, and the broker stores it once. The outcome is [sender.OutcomeUnknown] only if no answer came
// by then. If the same batch is sent again, it still has its number, and is stored once, although
// [sender.Report] has it under PossibleDuplicates. A message that is sent again in another batch, as
// a consumer does with a [sender.Sink], can be stored twice: sender.Stamped is for that.
//
// Before another batch follows a batch that was not accepted, the producer's epoch is raised. From
// then on the broker refuses the old one, should it still be on its way. So the messages of a key
// keep their order, and no batch is taken for another.
package kafkasender
