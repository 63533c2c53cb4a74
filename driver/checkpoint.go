package driver

import (
	"context"
	"time"
)

// Checkpoint is a partition's checkpoint.
type Checkpoint struct {
	Group       Group
	Partition   string
	Incarnation string          // of the topic, when the checkpoint was made or set
	Position    Position        // the last event that is done; Unset before a start was chosen
	Owner       string          // who claimed it last
	Epoch       int64           // of that claim; only ever rises
	Claims      int             // claims since the position last moved or a process left cleanly, the newest included
	Attempt     AttemptRecord   // what is known of the event behind the position
	Done        []SequenceRange // of AtLeastOnce: events behind the position that are done too, ascending
	Updated     time.Time
}

// AttemptRecord records failed attempts at one event, the one numbered Sequence, so
// that attempts are counted across restarts. The zero value means none.
type AttemptRecord struct {
	Sequence int64
	Attempts int    // begun or failed; 0 if there is no trial
	Error    string // of the last failed attempt; empty if it never came to an end
}

// SequenceRange is a run of events of a partition, by sequence number, both ends
// included.
type SequenceRange struct{ First, Last int64 }

// CheckpointStore keeps the checkpoints of [AtLeastOnce], apart from where the
// events take effect. Implementations are safe for concurrent use.
type CheckpointStore interface {
	// Claim makes the lease's owner and epoch those of the partition's
	// checkpoint, creating it if it is missing, and returns it. It does and
	// refuses what [TxStore.Claim] does; once it has returned, nothing sent
	// under an earlier claim can change the checkpoint any more.
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)

	// Advance moves the checkpoint to a position and replaces what is done
	// behind it: ranges in ascending order that neither touch nor overlap. A
	// store that has room for some only keeps the first of them. If the
	// position moves, Claims becomes 1.
	//
	// It returns an error that is [ErrFenced], and has changed nothing, if the
	// checkpoint's epoch and owner are not the lease's or if it stands behind
	// `to` already: it never moves backwards. After any other error it may
	// have happened or not, or may still; the same or a later one may be tried.
	Advance(ctx context.Context, lease Lease, to Position, done []SequenceRange) error

	// Leave notes that the owner gives the partition up in good order, as
	// [TxStore.Leave] does.
	Leave(ctx context.Context, lease Lease) error

	// Read returns the group's checkpoints sorted by partition, without
	// claiming them.
	Read(ctx context.Context, group Group) ([]Checkpoint, error)

	// Reset moves a checkpoint by hand, as [TxStore.Reset] does, and forgets
	// what was done behind it. Going back repeats on purpose: also a next stage
	// that tells repeats takes what is sent again for new, but for the newest.
	Reset(ctx context.Context, group Group, partition, incarnation string, to Position) (epoch int64, err error)
}
