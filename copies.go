package sluice

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// Copies of dead letters are driven by the store, not by what the delivery has just stored: a process
// can end between the two, and a writer whose lease is lost can store a dead letter late.

// copyPage is how many dead letters are in memory to be copied.
const copyPage = 16

// copyDeadLetters copies the partition's dead letters until the assignment is to end. It looks for
// them when one was stored here, and once in a lease for those that others have stored.
func (a *assignment) copyDeadLetters(marks driver.CopyMarks) {
	cfg := a.cfg
	wait := &clock.Backoff{Min: cfg.RetryMin, Max: max(cfg.RetryMin, cfg.LeaseFor), Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(a.lease.Epoch)))}
	for a.idle.Err() == nil {
		a.parked.Store(false)
		failed, err := a.copyUncopied(marks)
		switch {
		case a.idle.Err() != nil:
			return
		case err != nil:
			a.observe(driver.Observation{Kind: driver.KindCopyFailed, Events: failed, Err: fmt.Errorf("copy dead letters: %w", err)})
			cfg.Clock.Sleep(a.idle, wait.Next())
		default:
			wait.Reset()
			a.awaitDeadLetter()
		}
	}
}

// awaitDeadLetter waits until a dead letter is stored, at most a lease.
func (a *assignment) awaitDeadLetter() {
	cfg := a.cfg
	until := cfg.Clock.Elapsed() + cfg.LeaseFor
	for !a.parked.Load() && cfg.Clock.Elapsed() < until {
		if cfg.Clock.Sleep(a.idle, min(cfg.RedriveEvery, cfg.LeaseFor)) != nil {
			return
		}
	}
}

// copyNextAndFree calls copyNext and then frees the token, also after a panic.
func (a *assignment) copyNextAndFree(marks driver.CopyMarks, after int64) (copiedPage, error) {
	defer func() { <-a.host.Copies }()
	return a.copyNext(marks, after)
}

// copyUncopied copies what the store has, page by page, past dead letters that the target refuses. It
// stops if the target or the store is down. failed is how many dead letters it has not copied.
func (a *assignment) copyUncopied(marks driver.CopyMarks) (failed int, err error) {
	for after := int64(0); ; {
		select {
		case a.host.Copies <- struct{}{}:
		case <-a.idle.Done():
			return failed, a.ended()
		}
		page, notCopied := a.copyNextAndFree(marks, after)
		failed += page.missed
		if err == nil {
			err = notCopied
		}
		if page.last == after {
			return failed, err
		}
		after = page.last
	}
}

// copiedPage is what was done about a page of dead letters.
type copiedPage struct {
	last   int64 // its last ID; where the page begins, if none can follow
	missed int   // dead letters that were not copied
}

// copyNext copies the dead letters of one page, which begins after an ID.
func (a *assignment) copyNext(marks driver.CopyMarks, after int64) (copiedPage, error) {
	group, partition := a.topic.Group, a.lease.Partition
	ctx, cancel := a.requestCtx(a.idle)
	dead, err := marks.Uncopied(ctx, group, partition, after, copyPage)
	cancel()
	if err != nil || len(dead) == 0 {
		return copiedPage{last: after}, err
	}
	copied := make([]driver.ParkedEvent, 0, len(dead))
	for i := range dead {
		copied = append(copied, driver.ParkedEvent{ID: dead[i].ID, Position: dead[i].Event.Position()})
	}
	began := a.cfg.Clock.Elapsed()
	err = a.callCopy(dead)
	refused := blamed(err, len(dead))
	for _, r := range slices.Backward(refused) {
		copied = slices.Delete(copied, r.Index, r.Index+1)
	}
	down := errors.Is(err, ErrOutage)
	switch {
	case len(refused) > 0:
		err = refused[0].Err // one line says enough
	case err != nil:
		return copiedPage{after, len(dead)}, err
	}
	page := copiedPage{dead[len(dead)-1].ID, len(refused)}
	if len(copied) == 0 {
		if down {
			page.last = after
		}
		return page, err
	}
	// Unlike the copy it is done although the assignment is to end: otherwise all are copied again.
	ctx, cancel = a.shutdownCtx()
	notMarked := marks.MarkCopied(ctx, group, partition, copied)
	cancel()
	if notMarked != nil {
		return copiedPage{after, len(dead)}, fmt.Errorf("mark %d dead letters as copied: %w", len(copied), notMarked)
	}
	a.observe(driver.Observation{Kind: driver.KindCopied, Events: len(copied), Duration: a.cfg.Clock.Elapsed() - began})
	return page, err
}

// callCopy calls Config.CopyDeadLetters.
func (a *assignment) callCopy(dead []DeadLetter) error {
	defer a.copying.doing(activityCopy, 0, 0).done()
	ctx, cancel := context.WithTimeout(a.idle, a.cfg.LeaseFor)
	defer cancel()
	return guardGoexit("CopyDeadLetters", func() error { return a.cfg.CopyDeadLetters(ctx, dead) })
}

// CopyTo returns a [Config].CopyDeadLetters that writes dead letters to a sink, such as those of
// packages sender, sender/kafkasender and webhook, whose DeadLetterMessages make the records. record
// makes the record of a dead letter. If the sink rejects that ([ErrRejected]), for example because it
// is too large, the dead letter is written without its body: HasBody is false then, and Body,
// Properties and Headers are nil. ctx is that of a record of [AtLeastOnce] ([driver.FencingTokenOf],
// [driver.IncarnationOf]), without a stamp.
func CopyTo[R any](sink driver.Sink[R], record func(ctx context.Context, d *DeadLetter) (R, error)) func(context.Context, []DeadLetter) error {
	return func(ctx context.Context, dead []DeadLetter) error {
		errs := writeCopies(ctx, sink, record, dead)
		var bare []DeadLetter
		var of []int // their indexes
		for i, err := range errs {
			if d := dead[i]; faultOf(err) == faultRejected && err != nil && d.HasBody {
				d.HasBody, d.Event.Body, d.Event.Properties, d.Event.Headers = false, nil, nil, nil
				bare, of = append(bare, d), append(of, i)
			}
		}
		for i, err := range writeCopies(ctx, sink, record, bare) {
			errs[of[i]] = err
		}
		var refused []error
		for i, err := range errs {
			if err != nil {
				e := &dead[i].Event
				refused = append(refused, &driver.EventError{Index: i, Err: fmt.Errorf("dead letter %d (partition %s, event %d): %w", dead[i].ID, e.Partition, e.Sequence, err)})
			}
		}
		return errors.Join(refused...)
	}
}

// writeCopies writes a record of each dead letter, and returns their results. A record without a result
// when ctx ends has ctx's error.
func writeCopies[R any](ctx context.Context, sink driver.Sink[R], record func(context.Context, *DeadLetter) (R, error), dead []DeadLetter) []error {
	type result struct {
		i   int
		err error
	}
	errs := make([]error, len(dead))
	results := make(chan result, len(dead))
	waiting := 0
	for i := range dead {
		d := &dead[i]
		lease := Lease{Group: d.Group, Partition: d.Event.Partition}
		ctx := driver.WithEmission(ctx, driver.FencingToken{Lease: lease, Incarnation: d.Incarnation})
		r, err := record(ctx, d)
		if err != nil {
			errs[i] = err
			continue
		}
		var once sync.Once
		errs[i] = errNoResult
		waiting++
		sink.Submit(ctx, r, func(w driver.WriteResult) { once.Do(func() { results <- result{i, w.Err} }) })
	}
	for ; waiting > 0; waiting-- {
		var r result
		select {
		case r = <-results: // also if ctx has ended
		default:
			select {
			case r = <-results:
			case <-ctx.Done():
				return errs
			}
		}
		errs[r.i] = r.err
	}
	return errs
}

// errNoResult is the error of a copy whose outcome is unknown.
var errNoResult = driver.Outage(errors.New("no result in time"))
