package autoscale

import (
	"context"
	"time"
)

// Store keeps what must survive a restart, resource by resource. It is safe for
// concurrent use, by several processes too.
type Store interface {
	// Load returns a resource's memory. One that was never saved is empty, with
	// its Resource set.
	Load(ctx context.Context, resource string) (*ResourceState, error)
	// Save replaces a resource's memory and adds records to its log: both or
	// neither. It fails with ErrConflict if somebody else has saved it since m
	// was loaded (or saved), else gives m its new Version. Records with a
	// Sequence that the log has already replace them.
	Save(ctx context.Context, m *ResourceState, records ...Record) error

	// Outcome returns the outcome of the resource's highest-numbered action that
	// has one, or nil.
	Outcome(ctx context.Context, resource string) (*Outcome, error)
	// SetOutcome keeps an action's outcome, unless there is one with the same or
	// a higher number: that is no error.
	SetOutcome(ctx context.Context, resource string, o Outcome) error

	// Records returns a resource's log from a time on, oldest first, and of
	// these the newest limit (0: all).
	Records(ctx context.Context, resource string, since time.Time, limit int) ([]Record, error)
	// DeleteRecords removes the records before a time.
	DeleteRecords(ctx context.Context, resource string, before time.Time) error
}

// ResourceState is what the [Logic] remembers of a resource.
type ResourceState struct {
	Resource string
	Version  string // the store's; "" before the first Save

	// Windows are the points of the last while, by metric. They are kept
	// separately (in a table of their own, a row each).
	Windows map[string]*Window

	Instances int       // as last reported
	Reported  time.Time // when that was; zero: never
	LastUp    time.Time // when the last action upwards had succeeded; zero: never
	LastDown  time.Time // the same of the last one downwards
	Pending   *Action   // decided, and without an outcome so far
	Actions   int64     // the number of the last action decided
	Records   int64     // the sequence of the last record
}

// LastAction is when the last action had succeeded; zero: never.
func (m *ResourceState) LastAction() time.Time {
	if m.LastUp.After(m.LastDown) {
		return m.LastUp
	}
	return m.LastDown
}

// AddPoint puts a point into its metric's window and tells whether it is news.
func (m *ResourceState) AddPoint(p Point) bool { return m.window(p.Metric).Add(p) }
