package servicebus

import "time"

// Token identifies one lock of one message.
type Token [16]byte

// Message is a message in a queue. Its payload is shared and must not be modified.
type Message struct {
	Payload []byte
	// TTL is the message's time to live, limited by that of its queue. 0: that of the
	// queue.
	TTL time.Duration
	// Scheduled is the time at which the message is enqueued. Zero or past: at once.
	Scheduled time.Time
	// Session is the id of the message's session, if InSession.
	Session   string
	InSession bool

	// The broker sets the fields below.

	Sequence int64     // unique in its queue and increasing; a scheduled message gets a new one when it is enqueued
	Original int64     // the sequence number on sending if it was another: in a subscription that in the topic; or 0
	Enqueued time.Time // in whole milliseconds
	Expires  time.Time // zero: never
	State    State
	// Deliveries is the delivery count: earlier receptions that ended in abandon or an
	// expired lock.
	Deliveries uint32
	// Reason and Description say why the message is a dead letter.
	Reason, Description string
}

// State says how a message can be received.
type State byte

const (
	// Active: the message can be received.
	Active State = iota
	// Deferred: the message can be received by its sequence number only.
	Deferred
	// Scheduled: the message isn't enqueued yet.
	Scheduled
)

// Locked is a message that is locked by one receiver until it is settled or the lock
// expires.
type Locked struct {
	Message
	Token       Token
	LockedUntil time.Time
}

// Counts are the numbers of messages in a queue. Locked and deferred ones count as
// active.
type Counts struct {
	Active, DeadLetters, Scheduled int64
	Bytes                          int64 // of all payloads, reasons of dead letters, and session states
}

// Reasons why the broker dead-letters a message, in the words of Azure Service Bus.
const (
	ReasonDeliveries = "MaxDeliveryCountExceeded"
	ReasonExpired    = "TTLExpiredException"
	ReasonNoSession  = "Session ID is null"
)

// maxReason limits reason and description of a dead letter, in characters, as on Azure.
const maxReason = 4096

// maxOwnReason is the size in bytes up to which a reason and its description are kept
// also in a full queue, so that a receiver or the broker itself can still state one.
const maxOwnReason = 256
