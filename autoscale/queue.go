package autoscale

import "context"

// Names of the queues that join the parts.
const (
	MetricsQueue = "metrics" // from the collector to the logic: JSON of a Point
	ActionsQueue = "actions" // from the logic to the scaler: JSON of an Action
	ReportsQueue = "reports" // from the scaler to the logic: JSON of a Report
)

// Queue carries messages from one part to another. It delivers each message at
// least once, roughly in the order sent. Implementations must be safe for
// concurrent use; package autoscaletest has a conformance suite.
type Queue interface {
	// Send adds messages. After an error some of them may have been added.
	Send(ctx context.Context, bodies ...[]byte) error
	// Receive returns 1 to most messages. It waits until there is one, or returns
	// ctx's error when ctx ends. Each request that it makes to a server needs a
	// deadline of its own: the callers set one for the other methods, but not for it.
	// Received messages are hidden from other receivers for the queue's lock time; one
	// that has not been deleted by then is delivered again.
	Receive(ctx context.Context, most int) ([]Message, error)
	// Extend restarts the lock time of a message. It returns ErrLockLost if another
	// receiver has, or may have, received the message since.
	Extend(ctx context.Context, m *Message) error
	// Delete removes a message. It returns nil for one that is already gone; one
	// whose lock is lost may be delivered again.
	Delete(ctx context.Context, m *Message) error
	// DeadLetter moves a message that cannot be used out of the queue, and keeps it
	// with the reason where an operator can look at it.
	DeadLetter(ctx context.Context, m *Message, reason string) error
}

// Message is a message received from a [Queue].
type Message struct {
	ID         string // as the queue identifies it
	Body       []byte
	Deliveries int // how often it has been received, this time included: at least 1
	Receipt    any // for the queue's implementation
}
