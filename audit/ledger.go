package audit

import (
	"context"
	"iter"

	"github.com/sluice-go/sluice"
)

// Ledger is where events left their effects. Implementations are safe for
// concurrent use.
type Ledger interface {
	// Open begins a view of a partition, which doesn't change whatever is
	// written meanwhile. Dead letters are those of the topic's incarnation.
	Open(ctx context.Context, topic sluice.Topic, partition string) (View, error)
}

// View is what became of a partition's events. It is used by one goroutine.
type View interface {
	// Checkpoint is the partition's, false if there is none.
	Checkpoint(ctx context.Context) (sluice.Checkpoint, bool, error)
	// Entries yields rows and dead letters in ascending order of their
	// sequence numbers, each as often as it is there. It is asked once.
	Entries(ctx context.Context) iter.Seq2[Entry, error]
	Close() error
}

// Entry is an effect of an event, or its dead letter.
type Entry struct {
	Sequence   int64
	DeadLetter bool
}
