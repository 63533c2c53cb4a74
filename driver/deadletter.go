package driver

import (
	"context"
	"strings"
	"time"
)

// DeadLetterStatus is the state of a dead letter.
type DeadLetterStatus string

// The states of a dead letter. A dead letter whose redrive succeeded is removed.
const (
	StatusDead      DeadLetterStatus = "dead"      // waits for an operator
	StatusRetry     DeadLetterStatus = "retry"     // the partition's owner runs it again after NextAttempt
	StatusDiscarded DeadLetterStatus = "discarded" // an operator gave it up; it is kept for the audit
)

// DeadLetter is an event that could not be handled. Group, incarnation, partition and sequence
// number identify it; ID is the store's short name for it.
type DeadLetter struct {
	ID          int64 // given by the store, unique in it
	Group       Group
	Incarnation string    // of the topic
	FailedAt    time.Time // the last failed attempt
	Error       string    // of that attempt
	Attempts    int
	Status      DeadLetterStatus
	NextAttempt time.Time // with StatusRetry; zero otherwise

	// Event is the event itself. If HasBody is false, the body was over the limit or is not to be
	// stored: Body, Properties and Headers are missing, texts may be cut, and a redrive reads the
	// event from the log again.
	Event   Event
	HasBody bool
}

// DeadLetterFilter selects dead letters that match every field that is set. The zero value selects
// all.
type DeadLetterFilter struct {
	IDs           []int64
	Partition     string
	Status        []DeadLetterStatus // any of these
	Key           string             // partition key
	ErrorContains string             // case-insensitive
	FailedSince   time.Time          // inclusive
	FailedBefore  time.Time          // exclusive
	FirstSequence *int64             // inclusive
	LastSequence  *int64             // inclusive
	AfterID       int64              // for paging: IDs above this one
	Limit         int                // at most this many, lowest ID first; 0: all
}

// DeadLetterCount is how many dead letters of a partition have a status.
type DeadLetterCount struct {
	Partition string
	Status    DeadLetterStatus
	Count     int
}

// DeadLetterStore gives operators access to dead letters: the commands and the dashboard use it.
// Implementations are safe for concurrent use.
type DeadLetterStore interface {
	// List returns the selected dead letters, lowest ID first, without bodies, properties and
	// headers. A key that is no text may be changed.
	List(ctx context.Context, group Group, filter DeadLetterFilter) ([]DeadLetter, error)
	// Count returns how many dead letters are selected, by partition and status, without
	// those combinations that have none, in no order. The filter's Limit is ignored.
	Count(ctx context.Context, group Group, filter DeadLetterFilter) ([]DeadLetterCount, error)
	// Get returns one dead letter with its body. The error is an [ErrNotFound] if there is none.
	Get(ctx context.Context, group Group, id int64) (DeadLetter, error)
	// Redrive marks the selected dead letters for a redrive at a time and returns their number. The
	// zero time means now, by the store's clock. Marking one twice is harmless. The partition's
	// owner runs the redrive.
	Redrive(ctx context.Context, group Group, filter DeadLetterFilter, at time.Time) (int64, error)
	// Discard marks the selected dead letters as given up and returns their number.
	Discard(ctx context.Context, group Group, filter DeadLetterFilter) (int64, error)
}

// DeadLetterQueue is where the at-least-once deliveries store dead letters and find those to
// redrive. Dead letters are stored before the checkpoint passes their events. Operators use
// [DeadLetterStore]. Implementations are safe for concurrent use.
type DeadLetterQueue interface {
	// Park stores dead letters: all of them, or none. If one of the same identity is stored
	// already, its attempts, error, time and status are updated. The store chooses ID.
	Park(ctx context.Context, deadLetters []DeadLetter) error
	// Due returns the partition's dead letters whose redrive is due by the store's clock, with
	// bodies, lowest sequence number first, at most limit.
	Due(ctx context.Context, group Group, partition string, limit int) ([]DeadLetter, error)
	// Settle ends redrives. It removes those that succeeded, by ID, and stores status, error, time
	// and attempts of those that failed again. It changes only dead letters marked for redrive and
	// skips others, which an operator may have changed meanwhile.
	Settle(ctx context.Context, group Group, redriven []int64, failed []DeadLetter) error
	// Parked returns the events above after of which the partition has dead letters of any status,
	// by sequence number, ascending. After a restart these events count as done.
	Parked(ctx context.Context, group Group, partition, incarnation string, after int64) ([]ParkedEvent, error)
	// SetAside gives dead letters of a partition another incarnation: the log has lost their
	// events, and others have their numbers. All else stays as it is. It changes all of them, or
	// none. Those that are gone are skipped. One whose event has a dead letter of that incarnation
	// already is removed.
	SetAside(ctx context.Context, group Group, partition, incarnation string, lost []ParkedEvent) error
	// Held returns the partition keys, each once for each incarnation, of the partition's dead
	// letters that are not discarded. Those whose IDs are in except do not count, nor do those
	// without a key.
	Held(ctx context.Context, group Group, partition string, except []int64) ([]HeldKey, error)
}

// RedriveFinder is a [DeadLetterQueue] or [TxStore] that finds the partitions with redrives in one
// request. A consumer then asks once in RedriveEvery for all of its partitions, and calls Due only
// for those that have some. Implementations are safe for concurrent use.
type RedriveFinder interface {
	// DuePartitions returns those of the partitions for which Due returns dead letters, each once,
	// in no order. It is called every second, and should read none of the dead letters that are not
	// marked for redrive.
	DuePartitions(ctx context.Context, group Group, partitions []string) ([]string, error)
}

// CopyMarks is a [DeadLetterQueue] or [TxStore] that remembers which dead letters were copied to
// another system. No dead letter is marked when it is stored, whoever stores it, so that none is
// missed if the process ends before it is copied. A mark stays while the dead letter does: if its
// event fails again, if it is discarded, or set aside. Implementations are safe for concurrent use.
type CopyMarks interface {
	// Uncopied returns dead letters of the partition that are not marked, whatever their status,
	// with bodies: those with IDs above after, lowest ID first, at most limit.
	Uncopied(ctx context.Context, group Group, partition string, after int64, limit int) ([]DeadLetter, error)
	// MarkCopied marks dead letters of the partition: all of them, or none. Those that are gone are
	// skipped.
	MarkCopied(ctx context.Context, group Group, partition string, copied []ParkedEvent) error
}

// ParkedEvent is the event of a dead letter.
type ParkedEvent struct {
	ID       int64    // of the dead letter
	Position Position // of the event
}

// LostIncarnation returns the incarnation of the dead letters that [DeadLetterQueue].SetAside keeps
// apart from those of the events that have their numbers now, given the topic's and the history of
// the lost events.
func LostIncarnation(incarnation, history string) string { return incarnation + lostMark + history }

// lostMark is between incarnation and history. Incarnations of a topic that is Sparse have none.
const lostMark = "/"

// CutLost returns the topic's incarnation and the history of what [LostIncarnation] returned. Any
// other incarnation is not lost.
func CutLost(incarnation string) (topic, history string, lost bool) {
	return strings.Cut(incarnation, lostMark)
}

// HeldKey is a partition key of dead letters.
type HeldKey struct {
	Key         string
	Incarnation string // of the topic
	First       int64  // the lowest sequence number of these dead letters
}

// AtLeastOnceStore is what the at-least-once deliveries need from their store: checkpoints and dead
// letters.
type AtLeastOnceStore interface {
	CheckpointStore
	DeadLetterQueue
}
