package sluice

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

// Batch is a run of events of one partition in the log's order, never empty.
// All of it takes effect in one transaction, or none of it does.
type Batch struct {
	Group     Group
	Partition string
	Epoch     int64 // of the lease under which the batch is delivered
	Redriven  bool  // the single event is a dead letter on retry, out of the partition's order
	Events    []*Event
}
