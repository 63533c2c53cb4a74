package audit

import (
	"context"
	"iter"

	"github.com/sluice-go/sluice/driver"
)

// Ledger is the store of a pipeline's effects: its rows, dead letters and
// checkpoints. Implementations are safe for concurrent use.
type Ledger interface {
	// Open opens a consistent view of a partition: writes that happen later do
	// not change it. Its dead letters are those of the topic's incarnation.
	Open(ctx context.Context, topic driver.Topic, partition string) (View, error)
}

// View is a consistent view of what a partition's events left behind. It is used
// by one goroutine.
type View interface {
	// Checkpoint returns the partition's checkpoint, false if there is none.
	Checkpoint(ctx context.Context) (driver.Checkpoint, bool, error)
	// Entries yields every row and every dead letter, in ascending order of
	// sequence numbers, duplicates included. It is called once.
	Entries(ctx context.Context) iter.Seq2[Entry, error]
	Close() error
}

// Entry is one effect of an event, or its dead letter.
type Entry struct {
	Sequence   int64
	DeadLetter bool
}
