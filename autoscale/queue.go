package autoscale

import "context"

// Names of the queues that join the parts.
const (
	MetricsQueue = "metrics" // from the collector to the logic: JSON of a Point
	ActionsQueue = "actions" // from the logic to the scaler: JSON of an Action
	ReportsQueue = "reports" // from the scaler to the logic: JSON of a Report
)

// Queue carries messages from one part to another, each at least once, roughly
// in the order sent. It is safe for concurrent use.
type Queue interface {
	// Send adds messages. After an error some may have been added.
	Send(ctx context.Context, bodies ...[]byte) error
	// Receive returns up to most messages, waiting until there is one or ctx
	// ends. They are hidden from other receivers for the queue's lock time, and
	// come again when that is over unless they were deleted.
	Receive(ctx context.Context, most int) ([]Message, error)
	// Extend starts the lock time of a message anew. It fails with ErrLockLost
	// if somebody else has, or may have, received it since.
	Extend(ctx context.Context, m *Message) error
	// Delete removes a message. One that is gone already is no error; one whose
	// lock is lost may come again.
	Delete(ctx context.Context, m *Message) error
	// DeadLetter removes a message that can't be used, and keeps it, with the
	// reason, where people can look at it.
	DeadLetter(ctx context.Context, m *Message, reason string) error
}

// Message is a message received from a [Queue].
type Message struct {
	ID         string // the queue's name of it
	Body       []byte
	Deliveries int // how often it has been received, this time included: at least 1
	Receipt    any // the driver's
}
