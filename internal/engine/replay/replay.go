// Package replay delivers a partition's events into memory, from the start on at every assignment.
package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// Replayer is sluice.Replayer.
type Replayer struct {
	Apply    func(ctx context.Context, b driver.Batch) error
	CaughtUp func(ctx context.Context, lease driver.Lease) error
	Released func(lease driver.Lease, cause error)
}

type delivery struct{ Replayer }

// New makes the delivery that sluice.Replay describes.
func New(r Replayer) partition.Delivery { return &delivery{r} }

// Store returns nil: there are no checkpoints.
func (d *delivery) Store() any { return nil }

func (d *delivery) RedriveDue(context.Context, driver.Group, string) (bool, error) { return false, nil }

func (d *delivery) Redrive(*partition.Assignment) (applied, failed int, err error) {
	return 0, 0, errors.New("replay: there are no dead letters to redrive")
}

func (d *delivery) Deliver(a *partition.Assignment) error {
	w := &worker{a: a, Replayer: d.Replayer, pos: driver.Unset}
	err := a.Guarded(func() error { return a.Run(w, noCheckpoints{}) })
	w.discard(err)
	return err
}

// noCheckpoints is a store of checkpoints that keeps none.
type noCheckpoints struct{}

func (noCheckpoints) Claim(_ context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error) {
	return driver.Checkpoint{Group: lease.Group, Partition: lease.Partition, Incarnation: incarnation, Position: driver.Unset, Owner: lease.Owner, Epoch: lease.Epoch}, nil
}

func (noCheckpoints) Leave(context.Context, driver.Lease) error { return nil }

// worker delivers one partition's events into memory during one assignment.
type worker struct {
	a *partition.Assignment
	Replayer

	pos      driver.Position // of the last event that is in memory
	loaded   string          // the incarnation that is in memory; empty if none is
	end      int64           // the newest event when reading began
	caughtUp bool            // CaughtUp was called
}

// errReplay is a failure of the Replayer's functions.
var errReplay = errors.New("replay")

// Interrupted implements worker. After an error of the Replayer, or if the log does
// not hold what follows, the memory is discarded and the next reading starts from
// the beginning.
func (w *worker) Interrupted(err error) bool {
	if !errors.Is(err, errReplay) && !partition.NeedsOperator(err) {
		return false
	}
	w.discard(err)
	return true
}

// Recreated implements worker. Its memory is of the old incarnation: see prepare.
func (w *worker) Recreated() bool { return true }

// discard makes the user's code discard its memory.
func (w *worker) discard(cause error) {
	held := w.loaded != ""
	w.loaded, w.pos, w.caughtUp = "", driver.Unset, false
	w.a.Start = driver.Unset // retention may have passed it
	w.a.Lag.Restart()
	if errors.Is(cause, driver.ErrStopped) {
		cause = nil
	}
	if held && w.Released != nil {
		defer w.a.Delivery.Doing(partition.ActivityReplayer, 0, 0).Done()
		w.a.Hook("released", func() error { w.Released(w.a.Lease, cause); return nil })
	}
}

// Claimed implements worker.
func (w *worker) Claimed(driver.Checkpoint) {
	if w.loaded == "" {
		w.pos = driver.Unset // a start may be of an earlier incarnation
	}
}

// StoreStart implements worker.
func (w *worker) StoreStart(start driver.Position) error {
	w.pos = start
	return nil
}

// Prepare implements worker.
func (w *worker) Prepare() error {
	if w.loaded != "" && w.loaded != w.a.Incarnation {
		return &driver.RecreatedError{Topic: w.a.Topic.Topic, Partition: w.a.Lease.Partition, Had: w.loaded, Has: w.a.Incarnation}
	}
	if w.loaded != "" {
		return nil
	}
	// By Seek, because Bounds may be out of date: CaughtUp would come before the newest events.
	return w.a.Request(w.a.Idle, "get the partition's end", func(ctx context.Context) error {
		end, err := w.a.Host.Source.Seek(ctx, w.a.Lease.Partition, driver.Start{Kind: driver.StartLatest}, w.a.Lease.Epoch)
		if err == nil {
			w.loaded, w.end = w.a.Incarnation, end.Sequence
		}
		return err
	})
}

// Position implements worker.
func (w *worker) Position() driver.Position { return w.pos }

// Deliver implements worker.
func (w *worker) Deliver(buffer *partition.Buffer) error {
	for {
		if w.a.Idle.Err() != nil {
			return w.a.Ended()
		}
		if err := w.checkCaughtUp(w.pos.Sequence); err != nil {
			return err
		}
		events, err := buffer.TakeBatch(w.a.Settings.MaxBatch, int64(w.a.Settings.PrefetchBytes))
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if len(events) > 0 {
			if err := w.apply(events); err != nil {
				return err
			}
			continue
		}
		if to := buffer.Tail(); to.Sequence > w.pos.Sequence {
			w.moveTo(to, 0, 0, 0)
			continue
		}
		select {
		case <-buffer.Ready:
		case <-w.a.Idle.Done():
		}
	}
}

// apply calls the Replayer with events. Events up to the end come in batches
// of their own, so that CaughtUp is called between them and later ones.
func (w *worker) apply(events []*driver.Event) error {
	for len(events) > 0 {
		if err := w.checkCaughtUp(events[0].Sequence - 1); err != nil {
			return err
		}
		n := len(events)
		for i, e := range events {
			if !w.caughtUp && e.Sequence > w.end {
				n = i
				break
			}
		}
		filtering := w.a.Delivery.Doing(partition.ActivityFilter, events[0].Sequence, n)
		b := driver.Batch{Group: w.a.Topic.Group, Incarnation: w.a.Incarnation, Partition: w.a.Lease.Partition, Epoch: w.a.Lease.Epoch, Events: w.a.Settings.Handled(events[:n])}
		filtering.Done()
		began := w.a.Settings.Clock.Elapsed()
		if len(b.Events) > 0 {
			applying := w.a.Delivery.Doing(partition.ActivityReplayer, b.Events[0].Sequence, len(b.Events))
			err := callReplayer("apply", func() error { return w.Apply(w.a.Work, b) })
			applying.Done()
			if err != nil {
				return err
			}
		}
		w.moveTo(events[n-1].Position(), n, n-len(b.Events), w.a.Settings.Clock.Elapsed()-began)
		events = events[n:]
	}
	return w.checkCaughtUp(w.pos.Sequence)
}

// moveTo notes that all up to a position is in memory, of which so many events were not before, or
// were left out.
func (w *worker) moveTo(to driver.Position, events, filtered int, took time.Duration) {
	w.a.Observe(driver.Observation{Kind: driver.KindCommitted, From: w.pos, To: to, Events: events, Filtered: filtered, Duration: took, Lag: w.a.Lag.Measure(to)})
	w.pos = to
}

// checkCaughtUp calls CaughtUp, once, when the partition has caught up: all events up to a sequence
// number are in memory.
func (w *worker) checkCaughtUp(upTo int64) error {
	if w.caughtUp || upTo < w.end {
		return nil
	}
	w.caughtUp = true
	if w.CaughtUp == nil {
		return nil
	}
	defer w.a.Delivery.Doing(partition.ActivityReplayer, 0, 0).Done()
	return callReplayer("caught up", func() error { return w.CaughtUp(w.a.Work, w.a.Lease) })
}

// callReplayer calls a function of the Replayer.
func callReplayer(name string, fn func() error) error {
	if err := engine.GuardGoexit("function", fn); err != nil {
		return fmt.Errorf("%w: %s: %w", errReplay, name, err)
	}
	return nil
}
