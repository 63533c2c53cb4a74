package sluice

import "context"

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
