package sender

import (
	"cmp"
	"errors"

	"github.com/sluice-go/sluice"
)

// Message is a message to send. It must not be changed until SendAll returns, or
// until a [Sink] has reported its result.
type Message struct {
	// Key is the partition key, up to 128 characters, or any bytes in Kafka:
	// messages with the same key keep their order. Empty: any partition.
	Key string
	// EmptyKey says that the message has a key, and that is empty. Only Kafka
	// tells that from a message without a key.
	EmptyKey bool
	// SessionID is the session of Service Bus, up to 128 characters: messages of
	// the same session keep their order and need no Key; a Key must equal it.
	// Empty: no session. Event hubs have no sessions.
	SessionID string

	MessageID     string         // empty: SendAll generates one, which a resent batch keeps
	CorrelationID string         // empty: none
	ContentType   string         // MIME type; empty: none
	Properties    map[string]any // application properties, of AMQP's simple types
	// Headers are headers in order, whose names may repeat. Only Kafka has them.
	Headers []sluice.Header
	// Body is the payload. In Kafka nil is a null value, which a compacted topic
	// takes for the deletion of the key; elsewhere it is an empty payload.
	Body []byte
}

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
