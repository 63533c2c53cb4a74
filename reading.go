package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// worker is what an assignment drives: it delivers the events of one partition.
// [Transactional], [AtLeastOnce] and [Replay] have a worker each. All methods run
// on the delivery's goroutine.
type worker interface {
	// claimed takes over the checkpoint that a claim returned.
	claimed(cp Checkpoint)
	// storeStart stores where a partition begins that has no checkpoint yet, or
	// whose events after the start were removed before one was read.
	storeStart(start Position) error
	// prepare does what must be done while the log is not read.
	prepare() error
	// position returns the position after which to read.
	position() Position
	// deliver delivers the events that come into the buffer, until an error or
	// the assignment's end.
	deliver(buffer *prefetchBuffer) error
	// interrupted is called with an error that ended a reading. It returns true
	// if the worker has discarded its state and starts from the beginning: then
	// no error halts the partition.
	interrupted(err error) bool
	// recreated is called before the claim of another incarnation of the topic. It returns
	// false if the assignment must end instead: work of the old incarnation is in flight.
	recreated() bool
}

// claimer is what the stores of all deliveries have in common.
type claimer interface {
	Claim(ctx context.Context, lease Lease, incarnation string) (Checkpoint, error)
	Leave(ctx context.Context, lease Lease) error
}

// errReopen ends a reading of the log so that the next one starts from a new
// claim.
var errReopen = errors.New("reopen")

// haltedEvery is how often a halted partition checks whether an operator has set
// its checkpoint.
const haltedEvery = 10 * time.Second

// run reads the partition and drives the worker until the assignment ends, and
// returns why: claim the checkpoint, open the log after it, deliver, and start
// over when that is interrupted.
func (a *assignment) run(w worker, checkpoints claimer) error {
	wait := a.c.backoff(a.rand)
	var reported string // the error that was last reported to halt the partition
	for {
		began := a.c.cfg.Clock.Elapsed()
		err := a.explainSilence(a.read(w, checkpoints))
		if a.c.cfg.Clock.Elapsed()-began > a.c.cfg.RetryMax {
			wait.Reset()
		}
		switch {
		case a.idle.Err() != nil:
			return a.ended()
		case errors.Is(err, errReopen):
			continue
		case errors.Is(err, ErrFenced), errors.Is(err, ErrStolen):
			return err
		}
		halted := !w.interrupted(err) && needsOperator(err)
		if halted && a.startOvertaken(err) {
			halted, a.seekAgain = false, true
			err = fmt.Errorf("retention has passed the start %v before an event was read: choosing the start again", a.c.cfg.Start)
		}
		var pause time.Duration
		if halted {
			if reported != err.Error() {
				reported = err.Error()
				at := w.position()
				a.observe(Observation{Kind: KindStopped, From: at, To: at, Err: err})
			}
			pause = haltedEvery
		} else {
			a.failed(err)
			pause = wait.Next()
		}
		if err := a.pause(pause); err != nil {
			return err
		}
	}
}

// needsOperator reports whether an error will not pass by itself: the events at the position
// are gone, were never there, are others now, or cannot be decoded; the checkpoint is gone; or a
// handler has ended its transaction.
func needsOperator(err error) bool {
	return errors.Is(err, ErrRetention) || errors.Is(err, ErrRecreated) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrPastEnd) ||
		errors.Is(err, ErrUndecodable) || errors.Is(err, ErrMissing) || errors.Is(err, ErrHandlerEnded)
}

// startOvertaken reports whether an error says that retention has passed the start that
// this assignment has chosen, before it has read an event. Then nothing that a handler
// or a sink has seen lies between that start and another one. After a restart nobody
// knows that, so this does not outlast the assignment.
func (a *assignment) startOvertaken(err error) bool {
	if gone, is := errors.AsType[*RetentionError](err); is && gone.Held {
		return false
	}
	return a.unread && errors.Is(err, ErrRetention) && !namesEvent(a.c.cfg.Start)
}

// leave informs the store that the partition is released cleanly, so that this
// claim does not count as one that ended in a crash.
func (a *assignment) leave(checkpoints claimer) {
	ctx, cancel := a.shutdownCtx()
	defer cancel()
	if err := checkpoints.Leave(ctx, a.lease); err != nil {
		a.failed(fmt.Errorf("leave checkpoint: %w", err))
	}
}

// claim makes the checkpoint this lease's, and has the worker take it over.
func (a *assignment) claim(w worker, checkpoints claimer) error {
	topic, err := a.describe()
	if err != nil {
		return err
	}
	if a.incarnation != "" && a.incarnation != topic.Incarnation && !w.recreated() {
		err := &RecreatedError{Topic: topic.Topic, Partition: a.lease.Partition, Had: a.incarnation, Has: topic.Incarnation}
		a.failed(err)
		a.stop()
		return err
	}
	var cp Checkpoint
	err = a.request(a.work, "claim checkpoint", func(ctx context.Context) (err error) {
		cp, err = checkpoints.Claim(ctx, a.lease, topic.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	if cp.Incarnation != topic.Incarnation {
		return &RecreatedError{Topic: topic.Topic, Partition: a.lease.Partition, Had: cp.Incarnation, Has: topic.Incarnation}
	}
	if a.incarnation != topic.Incarnation {
		a.incarnation, a.start = topic.Incarnation, driver.Unset
	}
	w.claimed(cp)
	if err := claimHalted(a.lease, cp); err != nil {
		return err
	}
	keeper, keeps := checkpoints.(checkpointKeeper)
	if keeps {
		if err := a.checkMissing(w, keeper, cp); err != nil {
			return err
		}
	}
	if w.position() == driver.Unset || a.seekAgain {
		if err := a.chooseStart(); err != nil {
			return err
		}
		// The start is stored before the first event is read. Otherwise a restart
		// could choose another "latest" and skip the events in between.
		if a.start.Sequence > w.position().Sequence {
			if err := w.storeStart(a.start); err != nil {
				return fmt.Errorf("store start: %w", err)
			}
		}
		a.seekAgain = false
	}
	if keeps {
		if err := a.markBegan(w.position()); err != nil {
			return err
		}
	}
	if hook := a.c.cfg.Hooks.Assigned; hook != nil && !a.assignedHook {
		assigned := a.delivery.doing(activityAssigned, 0, 0)
		a.hook("assigned", func() error { return hook(a.work, a.lease, cp) })
		assigned.done()
	}
	a.assignedHook = true
	return nil
}

// chooseStart sets the start of a partition without a checkpoint. A start that was chosen stays the
// same until it is known to be stored: the request that stores it may still arrive.
func (a *assignment) chooseStart() error {
	from := a.c.cfg.Start
	switch {
	case a.seekAgain:
		from = Earliest() // all that the log still holds is after the start
	case a.start != driver.Unset:
		return nil
	}
	err := a.request(a.idle, fmt.Sprintf("seek %s", from), func(ctx context.Context) (err error) {
		a.start, err = a.c.source.Seek(ctx, a.lease.Partition, from, a.lease.Epoch)
		return err
	})
	if err != nil {
		a.start = driver.Unset
		return err
	}
	a.unread = true
	return nil
}

// read claims the checkpoint, opens the log after it and has the worker deliver
// what is read, until an error or the assignment's end.
func (a *assignment) read(w worker, checkpoints claimer) (err error) {
	if err := a.claim(w, checkpoints); err != nil {
		return err
	}
	if err := w.prepare(); err != nil {
		return err
	}
	var reader driver.Reader
	after := w.position()
	err = a.request(a.idle, "open log", func(ctx context.Context) (err error) {
		reader, err = a.c.source.Open(ctx, a.lease.Partition, after, a.lease.Epoch)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, done := a.shutdownCtx()
		defer done()
		if cerr := reader.Close(closing); cerr != nil && err == nil {
			err = fmt.Errorf("close reader: %w", cerr)
		}
	}()
	if err := a.checkIncarnation(); err != nil {
		return err
	}
	a.observe(Observation{Kind: KindOpened, To: after})

	buffer := newPrefetchBuffer(a.c.cfg.MaxBatch, a.c.cfg.PrefetchBytes, a.memory)
	ctx, cancel := context.WithCancel(a.idle)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		a.survive(func() {
			buffer.fetch(ctx, watchedReader{&countingReader{reader, a, after.Sequence}, &a.reader}, a.fetched)
		})
	})
	defer func() {
		defer a.delivery.doing(activityReader, 0, 0).done()
		cancel()
		fetching.Wait()
		buffer.discard()
	}()
	a.reading.Store(&reading{reader, buffer, a.incarnation})
	defer a.reading.Store(nil)
	return w.deliver(buffer)
}

// fetched reports events that were read, and notes the position up to which the log was read. In a
// sparse topic there may be no event, and numbers without one after the last event.
func (a *assignment) fetched(events []*Event, upTo Position) {
	lag := a.lag.fetched(upTo.Sequence)
	if len(events) == 0 {
		return
	}
	a.unread = false
	newest, bytes := events[len(events)-1], 0
	for _, e := range events {
		bytes += len(e.Body)
	}
	a.observe(Observation{Kind: KindFetched, To: newest.Position(), Events: len(events), Bytes: bytes, Enqueued: newest.Enqueued, Lag: lag})
}

// checkIncarnation returns errReopen if the topic was recreated after the
// checkpoint was claimed. A reader never reconnects by itself, so after this check
// all that it reads is of the claimed incarnation.
func (a *assignment) checkIncarnation() error {
	topic, err := a.describe()
	if err != nil {
		return err
	}
	if topic.Incarnation != a.incarnation {
		return errReopen
	}
	return nil
}

// describe asks the log for the topic.
func (a *assignment) describe() (topic Topic, err error) {
	err = a.request(a.idle, "describe topic", func(ctx context.Context) (err error) {
		topic, err = a.c.describeTopic(ctx)
		return err
	})
	return topic, err
}

// reread reads a dead letter's event from the log again. No other reader of this
// consumer may be open: a broker refuses a second one of the same epoch. It returns a
// [RecreatedError] where the topic was recreated since: its partition may be gone, and a
// broker refuses that in words of its own.
func (a *assignment) reread(d *DeadLetter) (*Event, error) {
	if topic, _, lost := driver.CutLost(d.Incarnation); lost && topic == a.incarnation && a.topic.Sparse {
		return nil, lostEventError(d)
	}
	recreated := &RecreatedError{Topic: a.topic.Topic, Partition: a.lease.Partition, Had: d.Incarnation, Has: a.incarnation}
	if d.Incarnation != a.incarnation {
		return nil, recreated
	}
	e, err := a.readEvent(d)
	topic, describeErr := a.describe()
	if describeErr == nil && topic.Incarnation != a.incarnation {
		recreated.Has = topic.Incarnation
		return nil, recreated
	}
	if err == nil {
		err = describeErr
	}
	return e, err
}

// readEvent reads a dead letter's event, of whatever incarnation the topic is now.
func (a *assignment) readEvent(d *DeadLetter) (*Event, error) {
	before := Position{Sequence: d.Event.Sequence - 1}
	opening, opened := a.requestCtx(a.idle)
	defer opened()
	r, err := a.c.source.Open(opening, a.lease.Partition, before, a.lease.Epoch)
	if err != nil {
		return nil, fmt.Errorf("open event %d: %w", d.Event.Sequence, err)
	}
	var events []*Event
	err = callDriver(func() (err error) {
		events, err = (&countingReader{r, a, before.Sequence}).Read(opening, 1)
		return err
	})
	late := opening.Err() != nil
	ctx, cancel := a.shutdownCtx()
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
	case a.topic.Sparse && (found.Sequence != d.Event.Sequence || found.Control):
		return nil, fmt.Errorf("event %d: the log does not hold it any more: %w", d.Event.Sequence, ErrRetention)
	case found.Sequence != d.Event.Sequence:
		return nil, &RetentionError{Partition: a.lease.Partition, After: before.Sequence, First: found.Sequence}
	case a.topic.Sparse && anotherHistory(found.Position(), d.Event.Position()):
		return nil, lostEventError(d)
	default:
		return found, nil
	}
}

// lostEventError is the error of a dead letter without a body whose event the log has lost.
func lostEventError(d *DeadLetter) error {
	return fmt.Errorf("event %d: the log has lost it and has another event of this number: %w", d.Event.Sequence, ErrTruncated)
}

// anotherHistory reports whether two positions of a sparse topic are known to be of different
// histories of the log.
func anotherHistory(a, b Position) bool {
	return a.Offset != "" && b.Offset != "" && a.History() != b.History()
}

// expired returns the error of a dead letter's event that was not read in time. A log that
// holds no event returns nothing, also if retention has removed the event.
func (a *assignment) expired(d *DeadLetter, err error) error {
	ctx, cancel := a.requestCtx(a.idle)
	defer cancel()
	oldest, seekErr := a.c.source.Seek(ctx, a.lease.Partition, Earliest(), a.lease.Epoch)
	if seekErr == nil && oldest.Sequence >= d.Event.Sequence {
		return &RetentionError{Partition: a.lease.Partition, After: d.Event.Sequence - 1, First: oldest.Sequence + 1}
	}
	return err
}
