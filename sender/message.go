package sender

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Message is a message to send. It must not be changed until SendAll returns, or
// until a [Sink] has reported its result.
type Message struct {
	// Key is the partition key, up to 128 characters, or any bytes in Kafka:
	// messages with the same key keep their order. Empty: any partition.
	Key string
	// EmptyKey says that the message has a key, and that is empty. Only Kafka
	// distinguishes that from a message without a key.
	EmptyKey bool
	// SessionID is the session of Service Bus, up to 128 characters: messages of
	// the same session keep their order and need no Key; a Key must equal it.
	// Empty: no session. Event hubs have no sessions.
	SessionID string

	MessageID     string // empty: SendAll generates one, which a resent batch keeps
	CorrelationID string // empty: none
	ContentType   string // MIME type; empty: none
	// Subject, also called label, says what the message is about: subscriptions of
	// Service Bus can select by it. Empty: none. Only Service Bus has it.
	Subject string
	// ReplyTo is the address to which an answer goes, such as the name of a queue.
	// Empty: none. Only Service Bus has it.
	ReplyTo string
	// TTL is how long the message lives after it was enqueued, in whole
	// milliseconds, up to [MaxTTL]. Default: that of the queue or topic. Only
	// Service Bus has it.
	TTL time.Duration
	// ScheduledFor is when Service Bus enqueues the message; before, no receiver
	// gets it. Zero or past: at once. Only Service Bus has it.
	ScheduledFor time.Time
	// Properties are the application properties, of AMQP's simple types, or a
	// [driver.DateTimeOffset], [driver.TimeSpan] or [driver.URI] of .NET.
	Properties map[string]any
	// Headers are headers in order, whose names may repeat. Only Kafka has them.
	Headers []driver.Header
	// Body is the payload. In Kafka nil is a null value, which a compacted topic
	// takes for the deletion of the key; elsewhere it is an empty payload.
	Body []byte
}

// MaxTTL is the longest [Message].TTL: AMQP has 32 bits for the milliseconds.
const MaxTTL = (1<<32 - 1) * time.Millisecond

// group is what the message keeps its order with, if it is grouped.
func (m *Message) group() string { return cmp.Or(m.SessionID, m.Key) }

// grouped reports whether the message keeps its order with others.
func (m *Message) grouped() bool { return m.SessionID != "" || m.Key != "" || m.EmptyKey }

// checkKafkaOnly returns why a service other than Kafka can't take a message, if
// so.
func (m *Message) checkKafkaOnly() error {
	switch {
	case len(m.Headers) > 0:
		return errors.New("only Kafka has headers: set Properties instead of Headers")
	case m.EmptyKey:
		return errors.New("only Kafka has empty keys: set EmptyKey to false")
	}
	return nil
}

// CheckServiceBusOnly returns why a service other than Service Bus can't take a
// message, if so. It is for authors of a [Transport].
func (m *Message) CheckServiceBusOnly() error {
	name := ""
	switch {
	case m.SessionID != "":
		return errors.New("only Service Bus has sessions: set Key instead of SessionID")
	case m.Subject != "":
		name = "Subject"
	case m.ReplyTo != "":
		name = "ReplyTo"
	case m.TTL != 0:
		name = "TTL"
	case !m.ScheduledFor.IsZero():
		name = "ScheduledFor"
	default:
		return nil
	}
	return fmt.Errorf("only Service Bus has %s: leave it empty", name)
}

// plain reports whether the message has no more than a key and a body.
func (m *Message) plain() bool {
	return m.SessionID == "" && m.MessageID == "" && m.CorrelationID == "" && m.ContentType == "" && m.Properties == nil && m.Headers == nil && !m.EmptyKey &&
		m.Subject == "" && m.ReplyTo == "" && m.TTL == 0 && m.ScheduledFor.IsZero()
}
