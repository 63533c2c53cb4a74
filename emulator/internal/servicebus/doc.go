// Package servicebus is a broker of queues, topics and subscriptions with the semantics
// of Azure Service Bus, without a network. A receiver locks a message (peek-lock) and
// settles it by its lock token: complete, abandon, defer or dead-letter. When a lock
// expires, the message becomes available again; after too many deliveries, or when its
// time to live is over, it becomes a dead letter. Messages can be scheduled, deferred,
// and belong to sessions.
//
// The package knows nothing of AMQP: a message is a payload plus the broker's own
// properties. Messages are in memory and, if the broker has a directory, also in a
// journal there: what [Receipt.Wait] has confirmed survives a killed process. Locks do
// not: after a restart no message is locked.
//
// Hardly anything runs in the background. Every operation begins by applying what is
// due by then: locks that have expired, messages that have expired, scheduled messages.
// A receiver that waits for a message also waits for the next such deadline.
//
// # The journal
//
// The journal is a log (emulator/internal/disklog) of the changes to entities and
// messages, replayed on start. A change gets its place in the log under the lock of its
// queue, so that the log has the order of the changes. The caller then waits for the
// disk without the lock, so that concurrent changes share one write. A message can be
// received only once it is on disk.
//
// When most of the journal is about messages that no longer exist, the remaining ones
// are written again and the older part is removed. So the journal is never much more
// than twice as large as its content.
//
// # Reading order
//
// broker.go and topic.go (entities), queue.go, store.go, receive.go, settle.go,
// session.go; then record.go, journal.go, recover.go. Lock order: Broker.mu, Topic.mu,
// Queue.mu (of several queues: Topic.scheduled, then the subscriptions by id),
// journal.mu.
package servicebus
