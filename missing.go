package sluice

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice/driver"
)

// A partition whose checkpoint was deleted looks like one that was never begun. To begin it again
// would repeat or skip events, so what else remembers the checkpoint decides which it is:
// this process, the lease, and the dead letters. A checkpoint that an operator has set to no
// position begins again.

// checkpointKeeper is a [claimer] that stores checkpoints.
type checkpointKeeper interface {
	Begin(ctx context.Context, lease Lease, from, to Position) error
	Parked(ctx context.Context, group Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error)
}

// checkMissing returns a [driver.MissingError] if a claim has found no checkpoint of a partition that had
// one.
func (a *assignment) checkMissing(w worker, store checkpointKeeper, cp Checkpoint) error {
	if cp.Position != driver.Unset || cp.Began.Known() {
		return nil
	}
	if at := w.position(); at != driver.Unset {
		// The worker knows what is done, and stores it again.
		a.failed(storedAgain(a.lease, at))
		return nil
	}
	missing := &driver.MissingError{Partition: a.lease.Partition}
	if began, here := a.host.Begun.load(a.lease.Partition, a.incarnation); here {
		missing.Known, missing.Next = fmt.Sprintf("this process stored it at %v", Position{Sequence: began}), began+1
		return missing
	}
	if a.lease.Began == a.incarnation {
		missing.Known = "the lease records it"
		return missing
	}
	if cp.DeadLettersBelow > 0 {
		missing.Known, missing.Next = fmt.Sprintf("there is a dead letter of event %d", cp.DeadLettersBelow-1), cp.DeadLettersBelow
		return missing
	}
	var parked []driver.ParkedEvent
	err := a.request(a.work, "look for dead letters", func(ctx context.Context) (err error) {
		parked, err = store.Parked(ctx, a.lease.Group, a.lease.Partition, a.incarnation, driver.Origin.Sequence)
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

// storedAgain is the warning of an owner that knows what is done without the checkpoint.
func storedAgain(lease Lease, at Position) error {
	return fmt.Errorf("partition %s: its checkpoint was gone, and is stored again at %v: find out what removed it", lease.Partition, at)
}

// markBegan has this process and the lease remember that the partition has a checkpoint.
func (a *assignment) markBegan(at Position) error {
	a.remember(at.Sequence)
	if a.marked == a.incarnation {
		return nil
	}
	err := a.request(a.work, "mark lease", func(ctx context.Context) error {
		return a.host.Leases.MarkBegan(ctx, a.lease, a.incarnation)
	})
	if err == nil {
		a.marked = a.incarnation
	}
	return err
}

// notePosition has this process remember how far the partition got.
func (a *assignment) notePosition() {
	if began, here := a.host.Begun.load(a.lease.Partition, a.incarnation); here {
		a.remember(max(began, a.lag.done.Load()))
	}
}

func (a *assignment) remember(position int64) {
	a.host.Begun.store(a.lease.Partition, a.incarnation, position)
}
