package autoscale

import (
	"context"
	"time"
)

// Store keeps the state of resources across restarts. Implementations must be safe
// for concurrent use, by several processes too; package autoscaletest has a
// conformance suite.
type Store interface {
	// Load returns a resource's state. For a resource that was never saved, only
	// Resource is set.
	Load(ctx context.Context, resource string) (*ResourceState, error)
	// Save replaces a resource's state and adds records to its log, atomically, and
	// sets m.Version. It returns ErrConflict if the state was saved by another
	// process since m was loaded or saved. A record replaces one with the same
	// Sequence.
	Save(ctx context.Context, m *ResourceState, records ...Record) error

	// Outcome returns the outcome of the resource's highest-numbered action that
	// has one, or nil.
	Outcome(ctx context.Context, resource string) (*Outcome, error)
	// SetOutcome saves an action's outcome. It does nothing, and returns nil, if
	// there is an outcome with the same or a higher number.
	SetOutcome(ctx context.Context, resource string, o Outcome) error

	// Records returns the newest limit records (0: all) of a resource's log with a
	// time not before since, oldest first.
	Records(ctx context.Context, resource string, since time.Time, limit int) ([]Record, error)
	// DeleteRecords deletes the records with a time before before.
	DeleteRecords(ctx context.Context, resource string, before time.Time) error

	// TakeLease makes l the lease of a resource, from now on, and returns nil. If the
	// lease of another owner has not expired, it changes nothing and returns that one.
	// An owner that holds the lease renews it so. Expiry is by one clock for all
	// processes, whatever theirs say.
	TakeLease(ctx context.Context, resource string, l Lease) (*Lease, error)
	// ReleaseLease ends the lease of an owner. It does nothing, and returns nil, if the
	// owner does not hold it.
	ReleaseLease(ctx context.Context, resource, owner string) error
}

// ResourceState is what the [Logic] keeps of a resource from one decision to the
// next. It is not safe for concurrent use.
type ResourceState struct {
	Resource string
	Version  string // set by the store; "" before the first Save

	// Windows are the recent values, by metric. Stores keep each window in a row of
	// its own.
	Windows map[string]*Window

	Instances int       // the last number reported
	Reported  time.Time // when it was reported; zero: never
	LastUp    time.Time // when the last scale-up succeeded; zero: never
	LastDown  time.Time // when the last scale-down succeeded; zero: never
	Pending   *Action   // the action decided on that has no outcome yet
	Actions   int64     // the number of the last action decided
	Records   int64     // the sequence of the last record
}

// LastAction returns when the last action succeeded; zero: never.
func (m *ResourceState) LastAction() time.Time {
	if m.LastUp.After(m.LastDown) {
		return m.LastUp
	}
	return m.LastDown
}

// AddPoint adds a point to its metric's window and reports whether the window has
// changed; see [Window.Add].
func (m *ResourceState) AddPoint(p Point) bool { return m.window(p.Metric).Add(p) }
