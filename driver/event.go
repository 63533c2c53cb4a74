package driver

import "time"

// Event is one record of a partition as the log handed it out. Handlers must
// not change it: a batch that fails is handed out again.
type Event struct {
	Partition string    // the partition's id
	Sequence  int64     // sequence number within the partition
	Offset    string    // opaque; empty where the log has none
	Enqueued  time.Time // when the log took the event, by the log's clock

	Key           string         // partition key; empty if it was sent without one
	MessageID     string         // the sender's id, if it gave one
	CorrelationID string         // the sender's, if it gave one
	ContentType   string         // MIME type, if the sender gave one
	Properties    map[string]any // application properties; nil if there are none
	Body          []byte
}

// Position is the event's own position: "up to and including this event".
func (e *Event) Position() Position { return Position{Sequence: e.Sequence, Offset: e.Offset} }
