// Package bus is a broker of queues, topics and subscriptions, as Azure Service Bus keeps them, without a network: messages are received
// under locks, settled by lock token, given back when a lock expires, and dead-lettered after too many deliveries or too long a life.
//
// It knows nothing of AMQP: a message is bytes and what the broker itself keeps of it. Messages live in memory.
//
// Nothing runs in the background. What time brings about (locks that expire, messages that do) is caught up with at the start of every
// operation; whoever waits for a message also waits for the next such moment.
package bus
