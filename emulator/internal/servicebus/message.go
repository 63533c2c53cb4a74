package servicebus

import "time"

// Token identifies one lock of one message.
type Token [16]byte

// Message is a message of a queue. Its payload is shared: nobody may change its bytes.
type Message struct {
	Payload []byte
	// TTL is how long the message lives, at most as long as its queue says. 0 is as long as that says.
	TTL time.Duration
	// Scheduled is when the message is to be enqueued. Zero, or in the past: at once.
	Scheduled time.Time
	// Session is what the message belongs to, if InSession.
	Session   string
	InSession bool

	// What follows is the broker's.

	Sequence int64     // unique in its queue, and increasing; a scheduled message gets a new one when it is enqueued
	Original int64     // the number that it was sent under: of a topic's messages, the topic's
	Enqueued time.Time // in whole milliseconds
	Expires  time.Time // zero: never
	State    State
	// Deliveries is how often the message was received before and given back, or lost its lock.
	Deliveries uint32
	// Reason and Description are why it is a dead letter.
	Reason, Description string
}

// State is whether a message can be received.
type State byte

const (
	// Active messages can be received.
	Active State = iota
	// Deferred messages can be received by their sequence number only.
	Deferred
	// Scheduled messages aren't enqueued yet.
	Scheduled
)

// Locked is a message that one receiver has until it is settled or the lock expires.
type Locked struct {
	Message
	Token Token
	Until time.Time
}

// Counts are the messages of a queue, locked and deferred ones among the active.
type Counts struct {
	Active, DeadLetters, Scheduled int64
	Bytes                          int64 // payloads of all
}

// Why the broker itself makes a message a dead letter, worded as Azure does.
const (
	ReasonDeliveries = "MaxDeliveryCountExceeded"
	ReasonExpired    = "TTLExpiredException"
	ReasonNoSession  = "Session ID is null"
)

// maxReason bounds reason and description of a dead letter, in bytes. Azure's limit is 4,096 characters.
const maxReason = 4096
