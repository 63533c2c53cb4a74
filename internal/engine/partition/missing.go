package partition

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// A partition whose checkpoint was deleted looks like one that was never begun. To begin it again
// would repeat or skip events, so what else remembers the checkpoint decides which it is:
// this process, the lease, and the dead letters. A checkpoint that an operator has set to no
// position begins again.

// checkpointKeeper is a [Claimer] that stores checkpoints.
type checkpointKeeper interface {
	Begin(ctx context.Context, lease driver.Lease, from, to driver.Position) error
	Parked(ctx context.Context, group driver.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error)
}

// checkMissing returns a [driver.MissingError] if a claim has found no checkpoint of a partition
// that had one.
func (a *Assignment) checkMissing(w Worker, store checkpointKeeper, cp driver.Checkpoint) error {
	if cp.Position != driver.Unset || cp.Began.Known() {
		return nil
	}
	if at := w.Position(); at != driver.Unset {
		// The worker knows what is done, and stores it again.
		a.Failed(StoredAgain(a.Lease, at))
		return nil
	}
	missing := &driver.MissingError{Partition: a.Lease.Partition}
	if began, here := a.Host.Begun.load(a.Lease.Partition, a.Incarnation); here {
		missing.Known, missing.Next = fmt.Sprintf("this process stored it at %v", driver.Position{Sequence: began}), began+1
		return missing
	}
	if a.Lease.Began == a.Incarnation {
		missing.Known = "the lease records it"
		return missing
	}
	if cp.DeadLettersBelow > 0 {
		missing.Known, missing.Next = fmt.Sprintf("there is a dead letter of event %d", cp.DeadLettersBelow-1), cp.DeadLettersBelow
		return missing
	}
	var parked []driver.ParkedEvent
	err := a.Request(a.Work, "look for dead letters", func(ctx context.Context) (err error) {
		parked, err = store.Parked(ctx, a.Lease.Group, a.Lease.Partition, a.Incarnation, driver.Origin.Sequence)
		return err
	})
	if err != nil {
		return err
	}
	if n := len(parked); n > 0 {
		last := parked[n-1].Position.Sequence
		missing.Known, missing.Next = fmt.Sprintf("there is a dead letter of event %d", last), last+1
		return missing
	}
	return nil
}

// StoredAgain is the warning of an owner that knows what is done without the checkpoint.
func StoredAgain(lease driver.Lease, at driver.Position) error {
	return fmt.Errorf("partition %s: its checkpoint was gone, and is stored again at %v: find out what removed it", lease.Partition, at)
}

// markBegan has this process and the lease remember that the partition has a checkpoint.
func (a *Assignment) markBegan(at driver.Position) error {
	a.remember(at.Sequence)
	if a.marked == a.Incarnation {
		return nil
	}
	err := a.Request(a.Work, "mark lease", func(ctx context.Context) error {
		return a.Host.Leases.MarkBegan(ctx, a.Lease, a.Incarnation)
	})
	if err == nil {
		a.marked = a.Incarnation
	}
	return err
}

// notePosition has this process remember how far the partition got.
func (a *Assignment) notePosition() {
	if began, here := a.Host.Begun.load(a.Lease.Partition, a.Incarnation); here {
		a.remember(max(began, a.Lag.done.Load()))
	}
}

func (a *Assignment) remember(position int64) {
	a.Host.Begun.Store(a.Lease.Partition, a.Incarnation, position)
}
