package driver

import (
	"context"
	"time"
)

// DeadLetterStatus is the state of a dead letter.
type DeadLetterStatus string

// The states of a dead letter. One that was retried with success is gone.
const (
	StatusDead      DeadLetterStatus = "dead"      // waits for a decision
	StatusRedrive   DeadLetterStatus = "retry"     // the partition's owner runs it again once NextAttempt has passed
	StatusDiscarded DeadLetterStatus = "discarded" // given up by hand; kept so that an audit can account for it
)

// DeadLetter is an event that could not be handled. Its identity is group,
// incarnation, partition and sequence number; ID is the store's short name
// for it.
type DeadLetter struct {
	ID          int64
	Group       Group
	Incarnation string
	FailedAt    time.Time
	Error       string
	Attempts    int
	Status      DeadLetterStatus
	NextAttempt time.Time // of status retry; zero otherwise

	// Event is the event itself. Where HasBody is false (the body was over the
	// limit, or storing is turned off), Body and Properties are missing and a
	// retry reads the event from the log again.
	Event   Event
	HasBody bool
}

// DeadLetterFilter selects dead letters. Fields that are set must all match;
// the zero value selects all.
type DeadLetterFilter struct {
	IDs           []int64
	Partition     string
	Status        []DeadLetterStatus // any of these
	Key           string             // partition key
	ErrorContains string             // case-insensitive
	FailedSince   time.Time
	FailedBefore  time.Time
	FirstSequence *int64
	LastSequence  *int64
	AfterID       int64 // for paging: ids above this one
	Limit         int   // at most so many, lowest id first; 0: all
}

// DeadLetterStore is the operator's side of the dead letters: what commands
// and the dashboard use. Implementations are safe for concurrent use.
type DeadLetterStore interface {
	// List returns the selected dead letters, lowest id first, without bodies
	// and properties.
	List(ctx context.Context, group Group, filter DeadLetterFilter) ([]DeadLetter, error)
	// Get returns one with its body. It returns [ErrNotFound] if there is none.
	Get(ctx context.Context, group Group, id int64) (DeadLetter, error)
	// Redrive marks the selected dead letters for a retry at a time (the zero
	// time: now, by the store's clock) and returns how many it marked. Marking
	// one twice is harmless. The partition's owner runs the retry.
	Redrive(ctx context.Context, group Group, filter DeadLetterFilter, at time.Time) (int64, error)
	// Discard gives the selected ones up and returns how many.
	Discard(ctx context.Context, group Group, filter DeadLetterFilter) (int64, error)
}

// DeadLetterQueue is where [AtLeastOnce] leaves dead letters and finds those to
// try again. They are stored before the checkpoint passes their events. What
// commands do with them is [DeadLetterStore]'s. Implementations are safe for
// concurrent use.
type DeadLetterQueue interface {
	// Park stores dead letters in one go, or none of them. Of one whose
	// identity is there, attempts, error, time and status are updated. ID is
	// the store's to choose.
	Park(ctx context.Context, letters []DeadLetter) error
	// Due returns the partition's dead letters whose retry is due by the
	// store's clock, with bodies, lowest sequence number first, at most limit.
	Due(ctx context.Context, group Group, partition string, limit int) ([]DeadLetter, error)
	// Settle ends retries: those applied (by id) are removed, those that
	// failed again get their new status, error, time and attempts. Only
	// letters with status retry change; others are passed over, for a
	// person may have been quicker.
	Settle(ctx context.Context, group Group, applied []int64, returned []DeadLetter) error
	// Parked returns the sequence numbers above `after` of the partition's
	// dead letters of any status, ascending: after a restart these events
	// count as done.
	Parked(ctx context.Context, group Group, partition, incarnation string, after int64) ([]int64, error)
	// Held returns the partition keys, each once, of the partition's dead
	// letters that are not discarded.
	Held(ctx context.Context, group Group, partition string) ([]string, error)
}

// AtLeastOnceStore keeps what the at-least-once delivery needs to store:
// checkpoints and dead letters.
type AtLeastOnceStore interface {
	CheckpointStore
	DeadLetterQueue
}
