// Package eventhub reads Azure Event Hubs over AMQP, by the official SDK: a
// [sluice.Source] for one hub and one consumer group.
//
//	source, err := eventhub.New(os.Getenv("EVENTHUB_CONNECTION_STRING"), "flights", nil)
//
// Every reader has a connection and a receiver link of its own, with the
// lease's epoch as owner level. When the link ends, so does the reader: it
// never comes back by itself, because the hub that it came back to might be
// another one of the same name. The consumer opens a new reader, after it has
// looked at the hub's creation time again. Azure limits the connections of a
// namespace (5,000 in the standard tier); a source has one for each reader, and
// one more.
//
// What an event is made of: the body is its data sections, one after the other.
// A sender may also put an AMQP value or sequence there; a string or binary
// value is taken as it is, anything else becomes JSON. Application properties
// keep their types, but for UUIDs and symbols, which become strings, and lists
// and maps, which become JSON. Text that is not UTF-8 is mended with U+FFFD.
//
// Sequence numbers of a partition follow each other without a gap, except in a
// hub with log compaction, whose gaps are reported as [sluice.RetentionError]:
// such a hub cannot be read by this package.
package eventhub
