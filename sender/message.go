package sender

// Message is what is sent. Nothing of it may be changed before SendAll returns.
type Message struct {
	// Key is the partition key, up to 128 characters: messages of a key keep
	// their order. Empty: any partition will do.
	Key string

	MessageID     string         // empty: SendAll makes one up, which its repeats share
	CorrelationID string         // empty: none
	ContentType   string         // MIME type; empty: none
	Properties    map[string]any // application properties, of AMQP's simple types
	Body          []byte
}
