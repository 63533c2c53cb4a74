package driver

import "time"

// Event is one event of a partition as the log returned it. Handlers must not change it: a batch
// that fails is handed to the handler again.
type Event struct {
	Partition string    // ID of the partition
	Sequence  int64     // sequence number within the partition
	Offset    string    // opaque, see [Position]; empty if the log has none
	Enqueued  time.Time // when the log accepted the event, by the log's clock

	// Created is when the sender made the event, by the sender's clock, in a log that keeps that
	// time instead of its own. There Enqueued is the same time. Zero in a log that stamps events
	// itself.
	Created time.Time

	Key           string // partition key, any bytes; empty if the event was sent without one
	EmptyKey      bool   // the event was sent with a key, and that is empty
	MessageID     string // set by the sender, or empty
	CorrelationID string // set by the sender, or empty
	ContentType   string // MIME type set by the sender, or empty
	// Properties are the application properties, of AMQP's simple types, or a [DateTimeOffset],
	// [TimeSpan] or [URI] of .NET; nil if there are none.
	Properties map[string]any

	// Headers are the event's headers as they were sent, in order, in a log that allows a name more
	// than once. There Properties has the last value of each name too: a string if that is valid
	// UTF-8, else a []byte, or the value of AMQP that the header is the encoding of. Nil in other
	// logs, and if there are none.
	Headers []Header

	// Body is what was sent. In a log that has null values, nil is one, which a compacted topic
	// takes for the deletion of the key, and a value without bytes is empty and not nil. In other
	// logs the two mean the same.
	Body []byte

	// Undecodable is why the driver could not decode the event; empty if it could. Body is then
	// what the log holds of it, and fields that are not known are empty. The engine makes a dead
	// letter of such an event without calling a handler; a Replayer, which has no dead letters,
	// gets it and must look. Only sources that were asked to return such events do.
	Undecodable string

	// Control marks a number that holds no event: it has a partition, a sequence number, perhaps an
	// offset, and nothing else. Only readers of a [Topic] that is Sparse return such markers. The
	// engine moves the checkpoint over them; no handler, sink, hook or dead letter sees one.
	Control bool

	// Passed says why the numbers before this event hold none: those after the event before, or
	// after the position that the reader was opened at. A marker's own number counts too. Nil:
	// there is no such number. Only readers of a [Topic] that is Sparse set it.
	Passed *Passed
}

// Passed counts numbers of a log that hold no event for a reader, by the reason. The reader must
// know the reason: that the log returned nothing for a number does not show that there is no event.
type Passed struct {
	Control int64 // records of the log itself, such as those that end a transaction
	Aborted int64 // events of aborted transactions
	Removed int64 // what the log has removed by its own rules, such as compaction
}

// Total returns how many numbers were passed.
func (p *Passed) Total() int64 {
	if p == nil {
		return 0
	}
	return p.Control + p.Aborted + p.Removed
}

// Add adds what another one counts.
func (p *Passed) Add(more *Passed) {
	if more != nil {
		p.Control += more.Control
		p.Aborted += more.Aborted
		p.Removed += more.Removed
	}
}

// Header is one header of an event.
type Header struct {
	Name  string
	Value []byte // nil if the header has a null value
}

// Position returns the position of the event: up to and including it.
func (e *Event) Position() Position { return Position{Sequence: e.Sequence, Offset: e.Offset} }

// Size returns how many bytes the event's body, properties, headers and texts have. Every bound in
// bytes counts it. In memory an event takes a few hundred bytes more.
func (e *Event) Size() int {
	n := len(e.Body) + len(e.Offset) + len(e.Key) + len(e.MessageID) + len(e.CorrelationID) + len(e.ContentType) + len(e.Undecodable)
	for name, value := range e.Properties {
		n += len(name)
		switch v := value.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		case URI:
			n += len(v)
		default:
			n += 8
		}
	}
	for i := range e.Headers {
		n += len(e.Headers[i].Name) + len(e.Headers[i].Value)
	}
	return n
}
