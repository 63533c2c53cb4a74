package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine"
)

// Copies of dead letters are driven by the store, not by what the delivery has just stored: a
// process can end between the two, and a writer whose lease is lost can store a dead letter late.

// copyPage is how many dead letters are in memory to be copied.
const copyPage = 16

// copyDeadLetters copies the partition's dead letters until the assignment is to end. It looks for
// them when one was stored here, and once in a lease for those that others have stored.
func (a *Assignment) copyDeadLetters(marks driver.CopyMarks) {
	cfg := a.Settings
	wait := &clock.Backoff{Min: cfg.RetryMin, Max: max(cfg.RetryMin, cfg.LeaseFor), Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(a.Lease.Epoch)))}
	defer a.copyReturned()
	for a.Idle.Err() == nil {
		a.parked.Store(false)
		failed, err := a.copyUncopied(marks)
		switch {
		case a.Idle.Err() != nil:
			return
		case err != nil:
			a.Observe(driver.Observation{Kind: driver.KindCopyFailed, Events: failed, Err: fmt.Errorf("copy dead letters: %w", err)})
			cfg.Clock.Sleep(a.Idle, wait.Next())
		default:
			a.copyReturned()
			wait.Reset()
			a.awaitDeadLetter()
		}
	}
}

// awaitDeadLetter waits until a dead letter is stored, at most a lease.
func (a *Assignment) awaitDeadLetter() {
	cfg := a.Settings
	until := cfg.Clock.Elapsed() + cfg.LeaseFor
	for !a.parked.Load() && cfg.Clock.Elapsed() < until {
		if cfg.Clock.Sleep(a.Idle, min(cfg.RedriveEvery, cfg.LeaseFor)) != nil {
			return
		}
	}
}

// copyNextAndFree calls copyNext and then frees the token, also after a panic.
func (a *Assignment) copyNextAndFree(marks driver.CopyMarks, after int64) (copiedPage, error) {
	defer func() { <-a.Host.Copies }()
	return a.copyNext(marks, after)
}

// copyUncopied copies what the store has, page by page, past dead letters that the target refuses.
// It stops if the target or the store is down. failed is how many dead letters it has not copied.
func (a *Assignment) copyUncopied(marks driver.CopyMarks) (failed int, err error) {
	for after := int64(0); ; {
		select {
		case a.Host.Copies <- struct{}{}:
		case <-a.Idle.Done():
			return failed, a.Ended()
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

// copyNext copies the dead letters of one page, which begins after an ID. Those that are tried
// again may be none soon: they are copied when they have failed for good.
func (a *Assignment) copyNext(marks driver.CopyMarks, after int64) (copiedPage, error) {
	group, partition := a.Topic.Group, a.Lease.Partition
	ctx, cancel := a.RequestCtx(a.Idle)
	dead, err := marks.Uncopied(ctx, group, partition, after, copyPage)
	cancel()
	if err != nil || len(dead) == 0 {
		return copiedPage{last: after}, err
	}
	last := dead[len(dead)-1].ID
	dead = slices.DeleteFunc(dead, func(d driver.DeadLetter) bool { return d.Status == driver.StatusRetry })
	if len(dead) == 0 {
		return copiedPage{last: last}, nil
	}
	copied := make([]driver.ParkedEvent, 0, len(dead))
	for i := range dead {
		copied = append(copied, driver.ParkedEvent{ID: dead[i].ID, Position: dead[i].Event.Position()})
	}
	began := a.Settings.Clock.Elapsed()
	err = a.callCopy(dead)
	refused := engine.Blamed(err, len(dead))
	for _, r := range slices.Backward(refused) {
		copied = slices.Delete(copied, r.Index, r.Index+1)
	}
	down := errors.Is(err, driver.ErrOutage)
	switch {
	case len(refused) > 0:
		err = refused[0].Err // one line says enough
	case err != nil:
		return copiedPage{after, len(dead)}, err
	}
	page := copiedPage{last, len(refused)}
	if len(copied) == 0 {
		if down {
			page.last = after
		}
		return page, err
	}
	// Unlike the copy it is done although the assignment is to end: otherwise all are copied again.
	ctx, cancel = a.ShutdownCtx()
	notMarked := marks.MarkCopied(ctx, group, partition, copied)
	cancel()
	if notMarked != nil {
		return copiedPage{after, len(dead)}, fmt.Errorf("mark %d dead letters as copied: %w", len(copied), notMarked)
	}
	a.Observe(driver.Observation{Kind: driver.KindCopied, Events: len(copied), Duration: a.Settings.Clock.Elapsed() - began})
	return page, err
}

// callCopy calls Config.CopyDeadLetters. A call that ends by its time limit, and those that follow
// it, are one activity until one of them does not.
func (a *Assignment) callCopy(dead []driver.DeadLetter) error {
	if a.hungCopy == nil {
		span := a.copying.Doing(activityCopy, 0, 0)
		a.hungCopy = &span
	}
	ctx, cancel := context.WithTimeout(a.Idle, a.Settings.LeaseFor)
	defer cancel()
	err := engine.GuardGoexit("CopyDeadLetters", func() error { return a.Settings.CopyDeadLetters(ctx, dead) })
	if err == nil || ctx.Err() == nil {
		a.copyReturned()
	}
	return err
}

// copyReturned ends the activity of callCopy.
func (a *Assignment) copyReturned() {
	if a.hungCopy != nil {
		a.hungCopy.Done()
		a.hungCopy = nil
	}
}
