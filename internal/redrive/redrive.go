// Package redrive has dead letters retried, and follows each until it is
// applied or has failed again, whoever runs the retry.
package redrive

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/clock"
)

// Desk is where an operator deals with the dead letters of a consumer group.
type Desk struct {
	Group       sluice.Group
	DeadLetters sluice.DeadLetterStore
	// Redrive runs the retries on partitions that nobody owns; see
	// [sluice.Consumer.Redrive].
	Redrive func(ctx context.Context) (applied, failed int, err error)
}

// Outcome is what has become of dead letters that were marked for a retry.
type Outcome struct {
	Applied   int // gone, their effects committed
	Discarded int // given up by somebody else meanwhile
	Failed    []sluice.DeadLetter
	Waiting   []sluice.DeadLetter // for the owner of their partition
}

const (
	// page is how many dead letters are named or listed in one request.
	page      = 500
	pollEvery = 200 * time.Millisecond
	// driveEvery is the time between two looks for partitions without an owner.
	driveEvery = time.Second
)

// Select lists the dead letters that filter selects.
func (d *Desk) Select(ctx context.Context, filter sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	limit := filter.Limit
	var all []sluice.DeadLetter
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

// Mark has the dead letters retried at a time, the zero time meaning now, and
// returns how many of them were still there.
func (d *Desk) Mark(ctx context.Context, letters []sluice.DeadLetter, at time.Time) (marked int64, err error) {
	err = paged(letters, func(ids []int64) error {
		n, err := d.DeadLetters.Redrive(ctx, d.Group, sluice.DeadLetterFilter{IDs: ids}, at)
		marked += n
		return err
	})
	if err != nil {
		return marked, fmt.Errorf("mark dead letters for a retry: %w", err)
	}
	return marked, nil
}

// Discard gives the dead letters up and returns how many were still there.
func (d *Desk) Discard(ctx context.Context, letters []sluice.DeadLetter) (discarded int64, err error) {
	err = paged(letters, func(ids []int64) error {
		n, err := d.DeadLetters.Discard(ctx, d.Group, sluice.DeadLetterFilter{IDs: ids})
		discarded += n
		return err
	})
	if err != nil {
		return discarded, fmt.Errorf("discard dead letters: %w", err)
	}
	return discarded, nil
}

// Follow waits until none of the marked dead letters waits any more, and runs
// those on partitions that nobody owns. It reports each look. If ctx ends
// first, or the retries can't go on, it returns the outcome so far with the
// error: what waits then stays marked.
func (d *Desk) Follow(ctx context.Context, letters []sluice.DeadLetter, report func(Outcome)) (Outcome, error) {
	running, stop := context.WithCancel(ctx)
	broken := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, _, err := d.Redrive(running); err != nil {
				broken <- err
				return
			}
			if clock.Sleep(running, driveEvery) != nil {
				return
			}
		}
	}()
	defer func() { stop(); <-ended }()
	so := Outcome{Waiting: letters}
	for {
		var failed error
		select {
		case failed = <-broken:
		default:
		}
		if err := d.look(ctx, &so); err != nil {
			return so, err
		}
		report(so)
		switch {
		case len(so.Waiting) == 0:
			return so, nil
		case failed != nil:
			return so, failed
		}
		if err := clock.Sleep(ctx, pollEvery); err != nil {
			return so, err
		}
	}
}

// look finds out which of those that waited do so no more.
func (d *Desk) look(ctx context.Context, so *Outcome) error {
	marked, err := d.Select(ctx, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusRedrive}})
	if err != nil {
		return err
	}
	waits := make(map[identity]bool, len(marked))
	for _, l := range marked {
		waits[identify(l)] = true
	}
	var still, settled []sluice.DeadLetter
	for _, l := range so.Waiting {
		if waits[identify(l)] {
			still = append(still, l)
		} else {
			settled = append(settled, l)
		}
	}
	left := make(map[identity]sluice.DeadLetter)
	err = paged(settled, func(ids []int64) error {
		some, err := d.DeadLetters.List(ctx, d.Group, sluice.DeadLetterFilter{IDs: ids})
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
		case l.Status == sluice.StatusRedrive: // marked anew between the two requests
			still = append(still, l)
		case l.Status == sluice.StatusDiscarded:
			so.Discarded++
		default:
			so.Failed = append(so.Failed, l)
		}
	}
	so.Waiting = still
	return nil
}

// identity tells dead letters apart for good; an id may be used again.
type identity struct {
	incarnation, partition string
	sequence               int64
}

func identify(l sluice.DeadLetter) identity {
	return identity{l.Incarnation, l.Event.Partition, l.Event.Sequence}
}

// paged calls fn with the ids of the dead letters, some at a time.
func paged(letters []sluice.DeadLetter, fn func(ids []int64) error) error {
	for len(letters) > 0 {
		n := min(len(letters), page)
		ids := make([]int64, n)
		for i, l := range letters[:n] {
			ids[i] = l.ID
		}
		if err := fn(ids); err != nil {
			return err
		}
		letters = letters[n:]
	}
	return nil
}
