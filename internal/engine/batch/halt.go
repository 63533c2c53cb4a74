package batch

import (
	"errors"
	"fmt"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// A handler that ends the transaction of its step has writes committed apart from the checkpoint,
// or may have. To repeat the events may repeat their effects; to pass over them may lose some. So
// the partition is halted. The halt is stored in place of the attempts: otherwise each restart
// would have the handler do the same again. An operator's reset of the checkpoint clears it.

// halt halts the partition after a handler has ended the transaction of a batch.
func (w *worker[Tx]) halt(b driver.Batch, err error) error {
	about := "a step without events"
	switch n := len(b.Events); {
	case n == 0:
	case b.Redriven:
		about = fmt.Sprintf("redrive of event %d", b.Events[0].Sequence)
	case n == 1:
		about = fmt.Sprintf("event %d", b.Events[0].Sequence)
	default:
		about = fmt.Sprintf("events %d to %d", b.Events[0].Sequence, b.Events[n-1].Sequence)
	}
	w.record.known = driver.HaltRecord(w.pos.Sequence+1, partition.ErrorText(fmt.Errorf("%s: %w", about, err)))
	return w.halted()
}

// halted returns the error of a partition that is halted, and stores the halt unless it is stored;
// nil if it is not halted.
func (w *worker[Tx]) halted() error {
	why := w.record.known.Halted()
	if why == "" {
		return nil
	}
	if w.a.Work.Err() == nil && !w.record.has(w.record.known) {
		err := w.storeAttempt(w.record.known)
		switch {
		case errors.Is(err, driver.ErrFenced):
			return err
		case err != nil:
			w.a.Failed(fmt.Errorf("store that the partition is halted: %w", err)) // tried again with the next claim
		}
	}
	return partition.HaltedError(w.a.Lease, w.pos, why)
}
