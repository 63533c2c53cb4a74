// Package eventhub reads Azure Event Hubs over AMQP. Its [Source] is a [driver.Source]
// for one hub and one consumer group.
//
//	source, err := eventhub.New(os.Getenv("EVENTHUB_CONNECTION_STRING"), "flights", nil)
//
// # Readers
//
// Every reader has a connection and a receiver link of its own. The lease's epoch
// is the link's owner level, which AMQP carries as the link property
// com.microsoft:epoch. When a link attaches, the broker closes a link with the same
// or a lower epoch, with the error amqp:link:stolen. The start position is an AMQP
// source filter, apache.org:selector-filter:string, on the sequence number, offset or
// enqueued time.
//
// A position is opened at its offset, or at its sequence number if it has none, and the
// sequence numbers of the events check it. What management requests report about a
// partition is advice: it can be seconds old, or never there on hubs that IoT Hub feeds.
// All sources of a process send at most 40 such requests a second to a namespace, which
// answers 50. The consumers and watchers of a group, in all of its processes, send 7 a second of
// their own accord ([Source.BoundsPerSecond]): in a hub with many partitions they ask for each
// more seldom.
//
// When the link ends, the reader ends too. It never reconnects by itself, because
// the hub that it reconnects to might be another one of the same name. The
// consumer opens a new reader after it has checked the hub's creation time again.
// Azure limits the connections of a namespace (5,000 in the standard tier). A
// source has one for each reader, and one for requests. The basic tier has 100
// connections, and no consumer group but $Default.
//
// # Receivers
//
// Events are received by a client of this module: an event is decoded from the memory into
// which its message was copied from the frame, for a quarter of the processor time that the
// official SDK takes. Config.Receiver chooses the SDK's client instead. Both send the broker
// the same attach, and return the same events, except for what the SDK cannot decode.
// Requests about hubs and partitions are always the SDK's.
//
// # Networks and clouds
//
// Config.OverWebSocket connects to port 443, through a proxy if there is one. The
// namespaces of all clouds work: a connection string or a host name says which, such as
// contoso.servicebus.chinacloudapi.cn or contoso.servicebus.usgovcloudapi.net. A
// credential for another cloud than the public one needs that cloud's authority: the
// Cloud of its options, or for azidentity.NewDefaultAzureCredential the environment
// variable AZURE_AUTHORITY_HOST, such as https://login.chinacloudapi.cn/.
//
// # Events
//
// An event's body is the data sections of the AMQP message, one after the other.
// A sender may also use an AMQP value or sequence as the body. A string or binary
// value is then taken as it is, and anything else becomes JSON. Application
// properties keep their types, except that UUIDs and symbols become strings, and
// lists and maps become JSON. Bytes that are not UTF-8 become U+FFFD in text.
//
// The AMQP types decimal32, decimal64, decimal128 and char, which clients for .NET and Java
// can write, become strings. The SDK's receiver does not decode them: with it, such an event
// is a [driver.UndecodableError], and its partition halts, as it does with both receivers for
// a message that is malformed. With Config.Undecodable our own receiver returns such a message
// as an event that becomes a dead letter.
//
// DateTimeOffset, TimeSpan and Uri, which .NET's clients send as described types, come as
// [driver.DateTimeOffset], [driver.TimeSpan] and [driver.URI].
//
// What IoT Hub states about the sender of an event, in annotations that begin with iothub-
// or dt-, comes as properties of the same names: iothub-connection-device-id,
// iothub-connection-auth-method, iothub-message-source and others. Of such an event,
// properties of these names are never the device's own.
//
// Sequence numbers of a partition are consecutive, except in a hub with log
// compaction. This package reports the gaps of such a hub as
// [driver.RetentionError] and cannot read it.
//
// # Protocol
//
// The protocol is described in the AMQP 1.0 specification
// (https://docs.oasis-open.org/amqp/core/v1.0/amqp-core-overview-v1.0.html) and in
// Microsoft's AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide).
// Owner levels are described in
// https://learn.microsoft.com/archive/blogs/gyan/event-hubs-receiver-epoch.
package eventhub
