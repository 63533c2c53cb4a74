// Package servicebus is a broker of queues, topics and subscriptions, as Azure Service Bus keeps them, without a network: messages are received
// under locks, settled by lock token, given back when a lock expires, and dead-lettered after too many deliveries or too long a life.
// Messages can be scheduled, deferred, and belong to sessions.
//
// It knows nothing of AMQP: a message is bytes and what the broker itself keeps of it. Messages are in memory, and with a directory also in
// a journal there: what [Receipt.Wait] has confirmed survives a killed process. Locks do not: after a restart messages are free.
//
// Hardly anything runs in the background. What time brings about (locks that expire, messages that do, or that are due) is caught up with
// at the start of every operation; whoever waits for a message also waits for the next such moment.
//
// # The journal
//
// It is a log (emulator/internal/disklog) of what became of entities and messages, replayed at the start. Every change is given its place in it under
// the lock of the queue that it is about, so that the order there is the order of the changes; only then does one wait, without the lock,
// until it is on disk: what waits together is written together. A message that is sent can be received once it is on disk, not before.
//
// When most of it is about messages that are gone, those that are left are written again, and what lies before is removed: so it is never
// much more than twice as large as what it tells of.
//
// # Reading order
//
// broker.go and topic.go (entities), queue.go, store.go, receive.go, settle.go, session.go; then record.go, journal.go, recover.go.
// Lock order: Broker.mu, Topic.mu, Queue.mu (of several queues: the topic's own, then by id), journal.mu.
package servicebus
