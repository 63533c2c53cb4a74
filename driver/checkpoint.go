package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Checkpoint is the stored state of one partition of a group: how far it has been processed, and
// who processes it.
type Checkpoint struct {
	Group       Group
	Partition   string
	Incarnation string          // of the topic when the checkpoint was created or reset
	Position    Position        // the last event that is done; Unset until a start was chosen
	Began       Beginning       // where the events begin that this checkpoint accounts for
	Owner       string          // of the last claim; empty after a reset
	Epoch       int64           // of the last claim or reset; it only rises
	Claims      int             // since the position last moved or an owner left cleanly, including the last claim
	Attempt     AttemptRecord   // attempts at the event after the position, or at a redrive
	Done        []SequenceRange // at-least-once delivery: events after the position that are done too, ascending
	Updated     time.Time       // when the checkpoint was last written, by the store's clock

	// DeadLettersBelow is set by [TxStore.Claim] only: the sequence numbers of the partition's dead
	// letters of this incarnation are all below it. 0 if there are none.
	DeadLettersBelow int64
}

// Beginning says where the events begin that a checkpoint accounts for. Each of them up to the
// checkpoint was handled. The zero value means that it is not known: an earlier version stored the
// checkpoint.
type Beginning struct {
	After int64 // sequence number of the event before the first one
	How   How
}

// Known reports whether the checkpoint says where it began.
func (b Beginning) Known() bool { return b.How != "" }

// How says what stored a [Beginning].
type How string

const (
	HowStart  How = "start"  // a consumer that found no checkpoint, by its configured start
	HowImport How = "import" // an operator, from the checkpoint of another processor
	HowSet    How = "set"    // an operator
)

// AttemptRecord records the attempts at one event, or at one redrive, so that they are counted
// across restarts. The zero value means that there were none. A [HaltRecord] takes the same place.
type AttemptRecord struct {
	Sequence   int64  // sequence number of the event
	DeadLetter int64  // ID of the dead letter on redrive; 0 for the event after the position
	Attempts   int    // attempts that failed
	Error      string // of the last of them
	// Unreturned is how many more attempts were recorded before they began and have not returned:
	// each time the process ended, unless the last one is still in progress.
	Unreturned int
}

// haltMark begins the Error of a record that halts a partition. No attempt is counted there.
const haltMark = "halted: "

// HaltRecord returns the record that halts a partition until an operator resets its checkpoint,
// also after a restart. Sequence is that of the event after the position.
func HaltRecord(sequence int64, why string) AttemptRecord {
	return AttemptRecord{Sequence: sequence, Error: haltMark + why}
}

// Halted returns why the partition is halted; empty if it is not.
func (r AttemptRecord) Halted() (why string) {
	if r.Attempts != 0 || r.Unreturned != 0 {
		return ""
	}
	why, halted := strings.CutPrefix(r.Error, haltMark)
	if !halted {
		return ""
	}
	return cmp.Or(why, "no reason stored")
}

// SequenceRange is a range of events of a partition by sequence number, including both ends.
type SequenceRange struct{ First, Last int64 }

// CheckpointStore keeps the checkpoints of the at-least-once deliveries, apart from where the
// events take effect. Implementations are safe for concurrent use.
type CheckpointStore interface {
	// Claim makes the lease's owner and epoch those of the partition's checkpoint, creates it if it
	// is missing, and returns it. It changes and refuses what [TxStore.Claim] does. Once it has
	// returned, no write sent under an earlier epoch can change the checkpoint.
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)

	// Begin stores the start of a partition, as [TxStore.Begin] does.
	Begin(ctx context.Context, lease Lease, from, to Position) error

	// Advance moves the checkpoint to a position and replaces Done by done: ranges after the
	// position, ascending, which neither touch nor overlap. A store with room for some of them
	// keeps the first ones. If the position changes, Claims becomes 1 and Attempt is cleared.
	//
	// The error is an [ErrFenced], and nothing has changed, if the checkpoint's owner and epoch are
	// not the lease's, if it is of another incarnation, or if its position is already after to: it
	// never moves back. A database that has lost its newest writes can have the checkpoint of an
	// earlier incarnation. After any other error the write may have happened, may still happen, or
	// may not; the caller may repeat it, or continue with a later one.
	Advance(ctx context.Context, lease Lease, incarnation string, to Position, done []SequenceRange) error

	// RecordAttempt stores an attempt record, as [TxStore.RecordAttempt] does. A text that takes
	// too much room may be cut.
	RecordAttempt(ctx context.Context, lease Lease, at Position, attempt AttemptRecord) error

	// Leave records that the owner stopped cleanly, as [TxStore.Leave] does.
	Leave(ctx context.Context, lease Lease) error

	// Read returns the group's checkpoints sorted by partition. It claims nothing.
	Read(ctx context.Context, group Group) ([]Checkpoint, error)

	// Reset moves a checkpoint for an operator, as [TxStore.Reset] does, and clears Done. After a
	// move back the events after the position are processed again on purpose. A later stage that
	// removes duplicates takes what is then sent again as new, except for the newest.
	Reset(ctx context.Context, group Group, partition, incarnation string, to Position, how How) (epoch int64, err error)
}
