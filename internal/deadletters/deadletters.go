// Package deadletters is what the command line and the dashboard do with dead letters: select
// them by conditions, redrive or discard them, and follow each redrive until it has succeeded or
// failed again, whichever process runs it.
package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
)

// Admin manages the dead letters of one consumer group for an operator.
type Admin struct {
	Group       driver.Group
	DeadLetters driver.DeadLetterStore
	// Redrive runs the redrives that are due on partitions without an owner; see
	// [sluice.Consumer.Redrive].
	Redrive func(ctx context.Context) (applied, failed int, err error)
}

// Outcome says what happened to dead letters that were marked for a redrive.
type Outcome struct {
	Applied   int // effect committed, dead letter deleted
	Discarded int // discarded by another operator in the meantime
	Failed    []driver.DeadLetter
	Waiting   []driver.DeadLetter // for the owner of their partition
}

const (
	// page is the largest number of dead letters in one request.
	page = 500
	// pollEvery is the time between two counts of what waits, at first and after it has changed.
	// While it stays the same, the time grows to maxPollEvery: a store in blobs reads the index
	// of each partition to count.
	pollEvery    = 200 * time.Millisecond
	maxPollEvery = 2 * time.Second
	// listEvery is the time between two listings of what waits if its number stays the same.
	listEvery = 5 * time.Second
	// redriveEvery is the time between two calls of Admin.Redrive.
	redriveEvery = time.Second
	// redriveFailures is how many calls in a row may fail: one request without an answer in time
	// must not end a command that has redriven half of the dead letters.
	redriveFailures = 3
)

// Select lists the dead letters that match filter, at most filter.Limit if that is positive.
func (d *Admin) Select(ctx context.Context, filter driver.DeadLetterFilter) ([]driver.DeadLetter, error) {
	limit := filter.Limit
	var all []driver.DeadLetter
	for {
		filter.Limit = page
		if limit > 0 {
			filter.Limit = min(page, limit-len(all))
		}
		some, err := d.DeadLetters.List(ctx, d.Group, filter)
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		all = append(all, some...)
		if len(some) < filter.Limit || len(all) == limit {
			return all, nil
		}
		filter.AfterID = some[len(some)-1].ID
	}
}

// Mark schedules a redrive of the dead letters at a time, where the zero time means now. It
// returns how many of them still existed.
func (d *Admin) Mark(ctx context.Context, selected []driver.DeadLetter, at time.Time) (marked int64, err error) {
	err = paged(selected, func(ids []int64) error {
		n, err := d.DeadLetters.Redrive(ctx, d.Group, driver.DeadLetterFilter{IDs: ids}, at)
		marked += n
		return err
	})
	if err != nil {
		return marked, fmt.Errorf("mark dead letters for redrive: %w", err)
	}
	return marked, nil
}

// Discard discards the dead letters. It returns how many of them still existed.
func (d *Admin) Discard(ctx context.Context, selected []driver.DeadLetter) (discarded int64, err error) {
	err = paged(selected, func(ids []int64) error {
		n, err := d.DeadLetters.Discard(ctx, d.Group, driver.DeadLetterFilter{IDs: ids})
		discarded += n
		return err
	})
	if err != nil {
		return discarded, fmt.Errorf("discard dead letters: %w", err)
	}
	return discarded, nil
}

// Follow waits until no marked dead letter waits any more, and runs the redrives of partitions
// without an owner. It calls report after each poll. If ctx ends first, or Redrive fails
// redriveFailures times in a row, it returns the outcome so far and the error; the dead letters
// that still wait stay marked.
func (d *Admin) Follow(ctx context.Context, selected []driver.DeadLetter, report func(Outcome)) (Outcome, error) {
	running, stop := context.WithCancel(ctx)
	broken := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for failures := 0; ; {
			_, _, err := d.Redrive(running)
			if err == nil {
				failures = 0
			} else if failures++; failures == redriveFailures || errors.Is(err, driver.ErrRefused) {
				broken <- err
				return
			}
			if clock.Sleep(running, redriveEvery) != nil {
				return
			}
		}
	}()
	defer func() { stop(); <-ended }()
	so := Outcome{Waiting: selected}
	marked, listed, wait := -1, time.Time{}, pollEvery
	for {
		var failed error
		select {
		case failed = <-broken:
		default:
		}
		n, err := d.countMarked(ctx)
		if err != nil {
			return so, err
		}
		if wait = min(wait*3/2, maxPollEvery); n != marked {
			wait = pollEvery
		}
		if n != marked || failed != nil || time.Since(listed) >= listEvery {
			marked, listed = n, time.Now()
			if err := d.look(ctx, &so); err != nil {
				return so, err
			}
		}
		report(so)
		switch {
		case len(so.Waiting) == 0:
			return so, nil
		case failed != nil:
			return so, failed
		}
		if err := clock.Sleep(ctx, wait); err != nil {
			return so, err
		}
	}
}

// countMarked returns how many dead letters of the group are marked.
func (d *Admin) countMarked(ctx context.Context) (n int, err error) {
	counts, err := d.DeadLetters.Count(ctx, d.Group, driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}})
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	for _, c := range counts {
		n += c.Count
	}
	return n, nil
}

// look moves the dead letters that no longer wait out of so.Waiting.
func (d *Admin) look(ctx context.Context, so *Outcome) error {
	marked, err := d.Select(ctx, driver.DeadLetterFilter{Status: []driver.DeadLetterStatus{driver.StatusRetry}})
	if err != nil {
		return err
	}
	waits := make(map[identity]bool, len(marked))
	for _, l := range marked {
		waits[identify(l)] = true
	}
	var still, settled []driver.DeadLetter
	for _, l := range so.Waiting {
		if waits[identify(l)] {
			still = append(still, l)
		} else {
			settled = append(settled, l)
		}
	}
	left := make(map[identity]driver.DeadLetter)
	err = paged(settled, func(ids []int64) error {
		some, err := d.DeadLetters.List(ctx, d.Group, driver.DeadLetterFilter{IDs: ids})
		for _, l := range some {
			left[identify(l)] = l
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	for _, was := range settled {
		l, ok := left[identify(was)]
		switch {
		case !ok:
			so.Applied++
		case l.Status == driver.StatusRetry: // marked again between the two requests
			still = append(still, l)
		case l.Status == driver.StatusDiscarded:
			so.Discarded++
		default:
			so.Failed = append(so.Failed, l)
		}
	}
	so.Waiting = still
	return nil
}

// identity identifies a dead letter for good. Its id does not: a store may use an id again.
type identity struct {
	incarnation, partition string
	sequence               int64
}

func identify(l driver.DeadLetter) identity {
	return identity{l.Incarnation, l.Event.Partition, l.Event.Sequence}
}

// paged calls fn with the ids of the dead letters, at most page at a time.
func paged(selected []driver.DeadLetter, fn func(ids []int64) error) error {
	for len(selected) > 0 {
		n := min(len(selected), page)
		ids := make([]int64, n)
		for i, l := range selected[:n] {
			ids[i] = l.ID
		}
		if err := fn(ids); err != nil {
			return err
		}
		selected = selected[n:]
	}
	return nil
}
