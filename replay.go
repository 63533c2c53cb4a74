package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// Replayer is what [Replay] delivers to: memory that can be built again from the log. Its
// functions are called one at a time for each partition.
type Replayer struct {
	// Apply takes a batch into memory, in the log's order. Each event comes once between
	// an assignment and Released. After an error or a panic it is unknown how much of the
	// batch is in memory: the partition is released and read again from the start.
	Apply func(ctx context.Context, b Batch) error
	// CaughtUp, if set, is called once after each assignment, when all events have been
	// applied that the partition held when the assignment began. Later events come as they
	// are sent. An error counts as one of Apply.
	CaughtUp func(ctx context.Context, lease Lease) error
	// Released, if set, is called to discard what is in memory of the partition. cause says
	// why; it is nil after a graceful stop.
	Released func(lease Lease, cause error)
}

// Replay delivers into memory, without checkpoints and dead letters. On every assignment a
// partition is read from [Config.Start] on, for example [Ago] 24 hours, and events follow as
// they arrive. It needs the log and leases. A partition must stay with one process while
// that runs, so Replay does not work with [Balanced] partitions. A connection that breaks
// repeats no event.
func Replay(r Replayer) Delivery { return &replay{r} }

type replay struct{ Replayer }

func (d *replay) check() error {
	if d.Apply == nil {
		return errors.New("replay: Apply is missing")
	}
	return nil
}

func (d *replay) redriveDue(context.Context, Group, string) (bool, error) { return false, nil }

func (d *replay) copyMarks() driver.CopyMarks { return nil }

func (d *replay) groupLister() driver.GroupLister { return nil }

func (d *replay) redriveFinder() driver.RedriveFinder { return nil }

func (d *replay) redrive(*assignment) (applied, failed int, err error) {
	return 0, 0, errors.New("replay: there are no dead letters to redrive")
}

func (d *replay) deliver(a *assignment) error {
	w := &replayWorker{a: a, Replayer: d.Replayer, pos: driver.Unset}
	err := a.guarded(func() error { return a.run(w, noCheckpoints{}) })
	w.discard(err)
	return err
}

// noCheckpoints is a store of checkpoints that keeps none.
type noCheckpoints struct{}

func (noCheckpoints) Claim(_ context.Context, lease Lease, incarnation string) (Checkpoint, error) {
	return Checkpoint{Group: lease.Group, Partition: lease.Partition, Incarnation: incarnation, Position: driver.Unset, Owner: lease.Owner, Epoch: lease.Epoch}, nil
}

func (noCheckpoints) Leave(context.Context, Lease) error { return nil }

// replayWorker delivers one partition's events into memory during one assignment.
type replayWorker struct {
	a *assignment
	Replayer

	pos      Position // of the last event that is in memory
	loaded   string   // the incarnation that is in memory; empty if none is
	end      int64    // the newest event when reading began
	caughtUp bool     // CaughtUp was called
}

// errReplay is a failure of the Replayer's functions.
var errReplay = errors.New("replay")

// interrupted implements worker. After an error of the Replayer, or if the log does
// not hold what follows, the memory is discarded and the next reading starts from
// the beginning.
func (w *replayWorker) interrupted(err error) bool {
	if !errors.Is(err, errReplay) && !needsOperator(err) {
		return false
	}
	w.discard(err)
	return true
}

// recreated implements worker. Its memory is of the old incarnation: see prepare.
func (w *replayWorker) recreated() bool { return true }

// discard makes the user's code discard its memory.
func (w *replayWorker) discard(cause error) {
	held := w.loaded != ""
	w.loaded, w.pos, w.caughtUp = "", driver.Unset, false
	w.a.start = driver.Unset // retention may have passed it
	w.a.lag.restart()
	if errors.Is(cause, ErrStopped) {
		cause = nil
	}
	if held && w.Released != nil {
		defer w.a.delivery.doing(activityReplayer, 0, 0).done()
		w.a.hook("released", func() error { w.Released(w.a.lease, cause); return nil })
	}
}

// claimed implements worker.
func (w *replayWorker) claimed(Checkpoint) {
	if w.loaded == "" {
		w.pos = driver.Unset // a start may be of an earlier incarnation
	}
}

// storeStart implements worker.
func (w *replayWorker) storeStart(start Position) error {
	w.pos = start
	return nil
}

// prepare implements worker.
func (w *replayWorker) prepare() error {
	if w.loaded != "" && w.loaded != w.a.incarnation {
		return &RecreatedError{Topic: w.a.topic.Topic, Partition: w.a.lease.Partition, Had: w.loaded, Has: w.a.incarnation}
	}
	if w.loaded != "" {
		return nil
	}
	// By Seek, because Bounds may be out of date: CaughtUp would come before the newest events.
	return w.a.request(w.a.idle, "get the partition's end", func(ctx context.Context) error {
		end, err := w.a.c.source.Seek(ctx, w.a.lease.Partition, Latest(), w.a.lease.Epoch)
		if err == nil {
			w.loaded, w.end = w.a.incarnation, end.Sequence
		}
		return err
	})
}

// position implements worker.
func (w *replayWorker) position() Position { return w.pos }

// deliver implements worker.
func (w *replayWorker) deliver(buffer *prefetchBuffer) error {
	for {
		if w.a.idle.Err() != nil {
			return w.a.ended()
		}
		if err := w.checkCaughtUp(w.pos.Sequence); err != nil {
			return err
		}
		events, err := buffer.takeBatch(w.a.c.cfg.MaxBatch, int64(w.a.c.cfg.PrefetchBytes))
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if len(events) > 0 {
			if err := w.apply(events); err != nil {
				return err
			}
			continue
		}
		if to := buffer.behind(); to.Sequence > w.pos.Sequence {
			w.moveTo(to, 0, 0, 0)
			continue
		}
		select {
		case <-buffer.ready:
		case <-w.a.idle.Done():
		}
	}
}

// apply calls the Replayer with events. Events up to the end come in batches
// of their own, so that CaughtUp is called between them and later ones.
func (w *replayWorker) apply(events []*Event) error {
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
		b := Batch{Group: w.a.topic.Group, Incarnation: w.a.incarnation, Partition: w.a.lease.Partition, Epoch: w.a.lease.Epoch, Events: w.a.c.cfg.handled(events[:n])}
		began := w.a.c.cfg.Clock.Elapsed()
		if len(b.Events) > 0 {
			applying := w.a.delivery.doing(activityReplayer, b.Events[0].Sequence, len(b.Events))
			err := callReplayer("apply", func() error { return w.Apply(w.a.work, b) })
			applying.done()
			if err != nil {
				return err
			}
		}
		w.moveTo(events[n-1].Position(), n, n-len(b.Events), w.a.c.cfg.Clock.Elapsed()-began)
		events = events[n:]
	}
	return w.checkCaughtUp(w.pos.Sequence)
}

// moveTo notes that all up to a position is in memory, of which so many events were not before, or
// were left out.
func (w *replayWorker) moveTo(to Position, events, filtered int, took time.Duration) {
	w.a.observe(Observation{Kind: KindCommitted, From: w.pos, To: to, Events: events, Filtered: filtered, Duration: took, Lag: w.a.lag.behind(to)})
	w.pos = to
}

// checkCaughtUp calls CaughtUp, once, when the partition has caught up: all events up to a sequence
// number are in memory.
func (w *replayWorker) checkCaughtUp(upTo int64) error {
	if w.caughtUp || upTo < w.end {
		return nil
	}
	w.caughtUp = true
	if w.CaughtUp == nil {
		return nil
	}
	defer w.a.delivery.doing(activityReplayer, 0, 0).done()
	return callReplayer("caught up", func() error { return w.CaughtUp(w.a.work, w.a.lease) })
}

// callReplayer calls a function of the Replayer.
func callReplayer(name string, fn func() error) error {
	if err := guardGoexit("function", fn); err != nil {
		return fmt.Errorf("%w: %s: %w", errReplay, name, err)
	}
	return nil
}
