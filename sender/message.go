package sender

import "cmp"

// Message is a message to send. It must not be changed until SendAll returns, or
// until a [Sink] has reported its result.
type Message struct {
	// Key is the partition key, up to 128 characters: messages with the same key
	// keep their order. Empty: any partition.
	Key string
	// SessionID is the session of Service Bus, up to 128 characters: messages of
	// the same session keep their order and need no Key; a Key must equal it.
	// Empty: no session. Event hubs have no sessions.
	SessionID string

	MessageID     string         // empty: SendAll generates one, which a resent batch keeps
	CorrelationID string         // empty: none
	ContentType   string         // MIME type; empty: none
	Properties    map[string]any // application properties, of AMQP's simple types
	Body          []byte
}

// group is what the message keeps its order with; empty: nothing.
func (m *Message) group() string { return cmp.Or(m.SessionID, m.Key) }
