package bus

import "time"

// Token identifies one lock of one message.
type Token [16]byte

// Message is a message of a queue. Its payload is shared: nobody may change its bytes.
type Message struct {
	Payload []byte
	// TTL is how long the message lives, at most as long as its queue says. 0 is as long as that says.
	TTL time.Duration

	// What follows is the broker's.

	Sequence int64     // unique in the entity that the message was sent to, and increasing
	Enqueued time.Time // in whole milliseconds
	Expires  time.Time // zero: never
	// Deliveries is how often the message was received before and given back, or lost its lock.
	Deliveries uint32
	// Reason and Description are why it is a dead letter.
	Reason, Description string
}

// Locked is a message that one receiver has until it is settled or the lock expires.
type Locked struct {
	Message
	Token Token
	Until time.Time
}

// Counts are the messages of a queue, locked ones among them.
type Counts struct {
	Active, DeadLetters int64
	Bytes               int64 // payloads of both
}

// Why the broker itself makes a message a dead letter, worded as Azure does.
const (
	ReasonDeliveries = "MaxDeliveryCountExceeded"
	ReasonExpired    = "TTLExpiredException"
)
