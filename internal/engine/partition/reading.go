package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
)

// Worker is what an assignment drives: it delivers the events of one partition.
// sluice.Transactional, sluice.AtLeastOnce and sluice.Replay have a worker each. All methods run
// on the delivery's goroutine.
type Worker interface {
	// Claimed takes over the checkpoint that a claim returned.
	Claimed(cp driver.Checkpoint)
	// StoreStart stores where a partition begins that has no checkpoint yet, or
	// whose events after the start were removed before one was read.
	StoreStart(start driver.Position) error
	// Prepare does what must be done while the log is not read.
	Prepare() error
	// Position returns the position after which to read.
	Position() driver.Position
	// Deliver delivers the events that come into the buffer, until an error or
	// the assignment's end.
	Deliver(buffer *Buffer) error
	// Interrupted is called with an error that ended a reading. It returns true
	// if the worker has discarded its state and starts from the beginning: then
	// no error halts the partition.
	Interrupted(err error) bool
	// Recreated is called before the claim of another incarnation of the topic. It returns
	// false if the assignment must end instead: work of the old incarnation is in flight.
	Recreated() bool
}

// Claimer is what the stores of all deliveries have in common.
type Claimer interface {
	Claim(ctx context.Context, lease driver.Lease, incarnation string) (driver.Checkpoint, error)
	Leave(ctx context.Context, lease driver.Lease) error
}

// ErrReopen ends a reading of the log so that the next one starts from a new
// claim.
var ErrReopen = errors.New("reopen")

// haltedEvery is how often a halted partition checks whether an operator has set
// its checkpoint.
const haltedEvery = 10 * time.Second

// Run reads the partition and drives the worker until the assignment ends, and
// returns why: claim the checkpoint, open the log after it, deliver, and start
// over when that is interrupted.
func (a *Assignment) Run(w Worker, checkpoints Claimer) error {
	wait := a.Settings.Backoff(a.Rand)
	var reported string // the error that was last reported to halt the partition
	for {
		began := a.Settings.Clock.Elapsed()
		err := a.explainSilence(a.read(w, checkpoints))
		if a.Settings.Clock.Elapsed()-began > a.Settings.RetryMax {
			wait.Reset()
		}
		switch {
		case a.Idle.Err() != nil:
			return a.Ended()
		case errors.Is(err, ErrReopen):
			continue
		case errors.Is(err, driver.ErrFenced), errors.Is(err, driver.ErrStolen):
			return err
		}
		halted := !w.Interrupted(err) && NeedsOperator(err)
		if halted && a.startOvertaken(err) {
			halted, a.seekAgain = false, true
			err = fmt.Errorf("retention has passed the start %v before an event was read: choosing the start again", a.Settings.Start)
		}
		var pause time.Duration
		if halted {
			if reported != err.Error() {
				reported = err.Error()
				at := w.Position()
				a.Observe(driver.Observation{Kind: driver.KindHalted, From: at, To: at, Err: err})
			}
			pause = haltedEvery
		} else {
			a.Failed(err)
			pause = wait.Next()
		}
		if err := a.Pause(pause); err != nil {
			return err
		}
	}
}

// NeedsOperator reports whether an error will not pass by itself: the events at the position
// are gone, were never there, are others now, or cannot be decoded; the checkpoint is gone; or a
// handler has ended its transaction.
func NeedsOperator(err error) bool {
	return errors.Is(err, driver.ErrRetention) || errors.Is(err, driver.ErrRecreated) || errors.Is(err, driver.ErrTruncated) || errors.Is(err, driver.ErrPastEnd) ||
		errors.Is(err, driver.ErrUndecodable) || errors.Is(err, driver.ErrMissing) || errors.Is(err, driver.ErrHandlerEnded)
}

// startOvertaken reports whether an error says that retention has passed the start that
// this assignment has chosen, before it has read an event. Then nothing that a handler
// or a sink has seen lies between that start and another one. After a restart nobody
// knows that, so this does not outlast the assignment.
func (a *Assignment) startOvertaken(err error) bool {
	if gone, is := errors.AsType[*driver.RetentionError](err); is && gone.Held {
		return false
	}
	return a.unread && errors.Is(err, driver.ErrRetention) && !namesEvent(a.Settings.Start)
}

// Leave informs the store that the partition is released cleanly, so that this
// claim does not count as one that ended in a crash.
func (a *Assignment) Leave(checkpoints Claimer) {
	ctx, cancel := a.ShutdownCtx()
	defer cancel()
	if err := checkpoints.Leave(ctx, a.Lease); err != nil {
		a.Failed(fmt.Errorf("leave checkpoint: %w", err))
	}
}

// Claim makes the checkpoint this lease's, and has the worker take it over.
func (a *Assignment) Claim(w Worker, checkpoints Claimer) error {
	topic, err := a.describe()
	if err != nil {
		return err
	}
	if a.Incarnation != "" && a.Incarnation != topic.Incarnation && !w.Recreated() {
		err := &driver.RecreatedError{Topic: topic.Topic, Partition: a.Lease.Partition, Had: a.Incarnation, Has: topic.Incarnation}
		a.Failed(err)
		a.stop()
		return err
	}
	var cp driver.Checkpoint
	err = a.Request(a.Work, "claim checkpoint", func(ctx context.Context) (err error) {
		cp, err = checkpoints.Claim(ctx, a.Lease, topic.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	a.noteStoreTime(&cp)
	if cp.Incarnation != topic.Incarnation {
		return &driver.RecreatedError{Topic: topic.Topic, Partition: a.Lease.Partition, Had: cp.Incarnation, Has: topic.Incarnation}
	}
	if a.Incarnation != topic.Incarnation {
		a.Incarnation, a.Start = topic.Incarnation, driver.Unset
	}
	w.Claimed(cp)
	if err := claimHalted(a.Lease, cp); err != nil {
		return err
	}
	keeper, keeps := checkpoints.(checkpointKeeper)
	if keeps {
		if err := a.checkMissing(w, keeper, cp); err != nil {
			return err
		}
	}
	if w.Position() == driver.Unset || a.seekAgain {
		if err := a.chooseStart(); err != nil {
			return err
		}
		// The start is stored before the first event is read. Otherwise a restart
		// could choose another "latest" and skip the events in between.
		if a.Start.Sequence > w.Position().Sequence {
			if err := w.StoreStart(a.Start); err != nil {
				return err
			}
		}
		a.seekAgain = false
	}
	if keeps {
		if err := a.markBegan(w.Position()); err != nil {
			return err
		}
	}
	if hook := a.Settings.Hooks.Assigned; hook != nil && !a.assignedHook {
		assigned := a.Delivery.Doing(activityAssigned, 0, 0)
		a.Hook("assigned", func() error { return hook(a.Work, a.Lease, cp) })
		assigned.Done()
	}
	a.assignedHook = true
	return nil
}

// chooseStart sets the start of a partition without a checkpoint. A start that was chosen stays the
// same until it is known to be stored: the request that stores it may still arrive.
func (a *Assignment) chooseStart() error {
	from := a.Settings.Start
	switch {
	case a.seekAgain:
		from = driver.Start{Kind: driver.StartEarliest} // all that the log still holds is after the start
	case a.Start != driver.Unset:
		return nil
	}
	err := a.Request(a.Idle, fmt.Sprintf("seek %s", from), func(ctx context.Context) (err error) {
		a.Start, err = a.Host.Source.Seek(ctx, a.Lease.Partition, from, a.Lease.Epoch)
		return err
	})
	if err != nil {
		a.Start = driver.Unset
		return err
	}
	a.unread = true
	return nil
}

// read claims the checkpoint, opens the log after it and has the worker deliver
// what is read, until an error or the assignment's end.
func (a *Assignment) read(w Worker, checkpoints Claimer) (err error) {
	if err := a.Claim(w, checkpoints); err != nil {
		return err
	}
	if err := w.Prepare(); err != nil {
		return err
	}
	var reader driver.Reader
	after := w.Position()
	err = a.Request(a.Idle, "open log", func(ctx context.Context) (err error) {
		reader, err = a.Host.Source.Open(ctx, a.Lease.Partition, after, a.Lease.Epoch)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, done := a.ShutdownCtx()
		defer done()
		defer a.Delivery.Doing(activityReader, 0, 0).Done()
		if cerr := reader.Close(closing); cerr != nil && err == nil {
			err = fmt.Errorf("close reader: %w", cerr)
		}
	}()
	if err := a.checkIncarnation(); err != nil {
		return err
	}
	a.Observe(driver.Observation{Kind: driver.KindOpened, To: after})

	buffer := newPrefetchBuffer(a.Settings.MaxBatch, a.Settings.PrefetchBytes, a.Memory)
	ctx, cancel := context.WithCancel(a.Idle)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		a.Survive(func() {
			buffer.fetch(ctx, watchedReader{&countingReader{reader, a, after.Sequence}, &a.reader}, a.fetched)
		})
	})
	defer func() {
		defer a.Delivery.Doing(activityReader, 0, 0).Done()
		cancel()
		fetching.Wait()
		buffer.discard()
	}()
	a.reading.Store(&reading{reader, buffer, a.Incarnation})
	defer a.reading.Store(nil)
	return w.Deliver(buffer)
}

// fetched reports events that were read, and notes the position up to which the log was read. In a
// sparse topic there may be no event, and numbers without one after the last event.
func (a *Assignment) fetched(events []*driver.Event, upTo driver.Position) {
	lag := a.Lag.fetched(upTo.Sequence)
	if len(events) == 0 {
		return
	}
	a.unread = false
	newest, bytes := events[len(events)-1], 0
	for _, e := range events {
		bytes += len(e.Body)
	}
	a.Observe(driver.Observation{Kind: driver.KindFetched, To: newest.Position(), Events: len(events), Bytes: bytes, Enqueued: newest.Enqueued, Lag: lag})
}

// checkIncarnation returns errReopen if the topic was recreated after the
// checkpoint was claimed. A reader never reconnects by itself, so after this check
// all that it reads is of the claimed incarnation.
func (a *Assignment) checkIncarnation() error {
	topic, err := a.describe()
	if err != nil {
		return err
	}
	if topic.Incarnation != a.Incarnation {
		return ErrReopen
	}
	return nil
}

// describe asks the log for the topic.
func (a *Assignment) describe() (topic driver.Topic, err error) {
	err = a.Request(a.Idle, "describe topic", func(ctx context.Context) (err error) {
		topic, err = a.Host.Describe(ctx)
		return err
	})
	return topic, err
}

// Reread reads a dead letter's event from the log again. No other reader of this
// consumer may be open: a broker refuses a second one of the same epoch. It returns a
// [driver.RecreatedError] where the topic was recreated since: its partition may be gone, and a
// broker refuses that in words of its own.
func (a *Assignment) Reread(d *driver.DeadLetter) (*driver.Event, error) {
	if topic, _, lost := driver.CutLost(d.Incarnation); lost && topic == a.Incarnation && a.Topic.Sparse {
		return nil, lostEventError(d)
	}
	recreated := &driver.RecreatedError{Topic: a.Topic.Topic, Partition: a.Lease.Partition, Had: d.Incarnation, Has: a.Incarnation}
	if d.Incarnation != a.Incarnation {
		return nil, recreated
	}
	e, err := a.readEvent(d)
	topic, describeErr := a.describe()
	if describeErr == nil && topic.Incarnation != a.Incarnation {
		recreated.Has = topic.Incarnation
		return nil, recreated
	}
	if err == nil {
		err = describeErr
	}
	return e, err
}

// nearby is how many numbers apart two events are at most that are read from the log in one run.
const nearby = 100

// RereadRun reads events of dead letters from the log again: that of the first, and those of the
// next ones that follow it there closely. It returns fewer if the log does not return them in time,
// for which [Assignment.Reread] says why, or if they have more than PrefetchBytes. As for that, no
// other reader of this consumer may be open. The events are charged, which the caller ends.
func (a *Assignment) RereadRun(run []driver.DeadLetter) (found []*driver.Event, charged int64, err error) {
	if run[0].Incarnation != a.Incarnation {
		return nil, 0, nil
	}
	defer a.Delivery.Doing(activityReread, run[0].Event.Sequence, len(run)).Done()
	for n := 1; n < len(run); n++ {
		at, last := run[n].Event.Sequence, run[n-1].Event.Sequence
		if run[n].HasBody || run[n].Incarnation != a.Incarnation || at <= last || at-last > nearby || at-run[0].Event.Sequence >= 2*int64(a.Settings.MaxBatch) {
			run = run[:n]
			break
		}
	}
	before := driver.Position{Sequence: run[0].Event.Sequence - 1}
	opening, opened := a.RequestCtx(a.Idle)
	defer opened()
	r, err := a.Host.Source.Open(opening, a.Lease.Partition, before, a.Lease.Epoch)
	if err == nil {
		found, charged, err = a.readRun(opening, &countingReader{r, a, before.Sequence}, run)
		ctx, cancel := a.ShutdownCtx()
		defer cancel()
		if cerr := r.Close(ctx); err == nil {
			err = cerr
		}
	}
	if err == nil {
		err = a.checkIncarnation()
	}
	switch {
	case a.Idle.Err() != nil:
		return nil, charged, a.Ended()
	case errors.Is(err, driver.ErrFenced), errors.Is(err, driver.ErrStolen):
		return nil, charged, err
	case err != nil:
		return nil, charged, nil
	}
	return found, charged, nil
}

// readRun reads the events of dead letters that ascend, until one is missing. It reads no further
// than the last of them. What was found is charged.
func (a *Assignment) readRun(ctx context.Context, r driver.Reader, run []driver.DeadLetter) (found []*driver.Event, charged int64, err error) {
	at, bytes := run[0].Event.Sequence-1, 0
	account := a.Memory.RedrivenAccount()
	for len(found) < len(run) && bytes < a.Settings.PrefetchBytes && err == nil {
		var events []*driver.Event
		account.Take(driver.ReadBytes)
		err = engine.CallDriver(func() (err error) {
			events, err = r.Read(ctx, min(int(run[len(run)-1].Event.Sequence-at), a.Settings.MaxBatch))
			return err
		})
		for _, e := range events {
			at = e.Sequence
			for len(found) < len(run) && run[len(found)].Event.Sequence < e.Sequence {
				run = run[:len(found)] // the log does not hold this one any more
			}
			if len(found) == len(run) {
				break
			}
			d := &run[len(found)]
			if lost := a.Topic.Sparse && AnotherHistory(e.Position(), d.Event.Position()); d.Event.Sequence == e.Sequence && !e.Control && !lost {
				found, bytes = append(found, e), bytes+e.Size()
			}
		}
		account.Settle(charged+driver.ReadBytes, ChargeOf(len(found), int64(bytes)))
		charged = ChargeOf(len(found), int64(bytes))
	}
	return found, charged, err
}

// readEvent reads a dead letter's event, of whatever incarnation the topic is now.
func (a *Assignment) readEvent(d *driver.DeadLetter) (*driver.Event, error) {
	defer a.Delivery.Doing(activityReread, d.Event.Sequence, 1).Done()
	before := driver.Position{Sequence: d.Event.Sequence - 1}
	opening, opened := a.RequestCtx(a.Idle)
	defer opened()
	r, err := a.Host.Source.Open(opening, a.Lease.Partition, before, a.Lease.Epoch)
	if err != nil {
		return nil, fmt.Errorf("open event %d: %w", d.Event.Sequence, err)
	}
	var events []*driver.Event
	err = engine.CallDriver(func() (err error) {
		events, err = (&countingReader{r, a, before.Sequence}).Read(opening, 1)
		return err
	})
	late := opening.Err() != nil
	ctx, cancel := a.ShutdownCtx()
	defer cancel()
	if cerr := r.Close(ctx); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil && late {
		err = a.expired(d, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read event %d: %w", d.Event.Sequence, err)
	}
	switch found := events[0]; {
	case a.Topic.Sparse && (found.Sequence != d.Event.Sequence || found.Control):
		return nil, fmt.Errorf("event %d: the log does not hold it any more: %w", d.Event.Sequence, driver.ErrRetention)
	case found.Sequence != d.Event.Sequence:
		return nil, &driver.RetentionError{Partition: a.Lease.Partition, After: before.Sequence, First: found.Sequence}
	case a.Topic.Sparse && AnotherHistory(found.Position(), d.Event.Position()):
		return nil, lostEventError(d)
	default:
		return found, nil
	}
}

// lostEventError is the error of a dead letter without a body whose event the log has lost.
func lostEventError(d *driver.DeadLetter) error {
	return fmt.Errorf("event %d: the log has lost it and has another event of this number: %w", d.Event.Sequence, driver.ErrTruncated)
}

// AnotherHistory reports whether two positions of a sparse topic are known to be of different
// histories of the log.
func AnotherHistory(a, b driver.Position) bool {
	return a.Offset != "" && b.Offset != "" && a.History() != b.History()
}

// expired returns the error of a dead letter's event that was not read in time. A log that
// holds no event returns nothing, also if retention has removed the event.
func (a *Assignment) expired(d *driver.DeadLetter, err error) error {
	ctx, cancel := a.RequestCtx(a.Idle)
	defer cancel()
	oldest, seekErr := a.Host.Source.Seek(ctx, a.Lease.Partition, driver.Start{Kind: driver.StartEarliest}, a.Lease.Epoch)
	if seekErr == nil && oldest.Sequence >= d.Event.Sequence {
		return &driver.RetentionError{Partition: a.Lease.Partition, After: d.Event.Sequence - 1, First: oldest.Sequence + 1}
	}
	return err
}

// namesEvent reports whether a start names one event. The others mean the oldest event
// that the log holds, or the oldest since some time.
func namesEvent(s driver.Start) bool {
	return s.Kind == driver.StartSequence || s.Kind == driver.StartOffset || s.Kind == driver.StartLatest
}
