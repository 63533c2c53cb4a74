package driver

import "time"

// Event is one event of a partition as the log returned it. Handlers must not change it: a batch
// that fails is handed to the handler again.
type Event struct {
	Partition string    // ID of the partition
	Sequence  int64     // sequence number within the partition
	Offset    string    // opaque; empty if the log has none
	Enqueued  time.Time // when the log accepted the event, by the log's clock

	Key           string         // partition key; empty if the event was sent without one
	MessageID     string         // set by the sender, or empty
	CorrelationID string         // set by the sender, or empty
	ContentType   string         // MIME type set by the sender, or empty
	Properties    map[string]any // application properties; nil if there are none
	Body          []byte
}

// Position returns the position of the event: up to and including it.
func (e *Event) Position() Position { return Position{Sequence: e.Sequence, Offset: e.Offset} }

// Size returns how many bytes the event's body, properties and texts have. Every bound in bytes
// counts it. In memory an event takes a few hundred bytes more.
func (e *Event) Size() int {
	n := len(e.Body) + len(e.Offset) + len(e.Key) + len(e.MessageID) + len(e.CorrelationID) + len(e.ContentType)
	for name, value := range e.Properties {
		n += len(name)
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		default:
			n += 8
		}
	}
	return n
}
