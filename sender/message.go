package sender

import "cmp"

// Message is what is sent. Nothing of it may be changed before SendAll returns.
type Message struct {
	// Key is the partition key, up to 128 characters: messages of a key keep
	// their order. Empty: any partition will do.
	Key string
	// SessionID is that of Service Bus, up to 128 characters: messages of a
	// session keep their order, and need no key; if there is one, it must be the
	// same. Empty: none. Event hubs have no sessions.
	SessionID string

	MessageID     string         // empty: SendAll makes one up, which its repeats share
	CorrelationID string         // empty: none
	ContentType   string         // MIME type; empty: none
	Properties    map[string]any // application properties, of AMQP's simple types
	Body          []byte
}

// group is what the message keeps its order with; empty: nothing.
func (m *Message) group() string { return cmp.Or(m.SessionID, m.Key) }
