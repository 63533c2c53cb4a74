package sluice

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// redriveFinder asks once in RedriveEvery which partitions have redrives, for all partitions
// of a consumer, if the store can say that. It is safe for concurrent use.
type redriveFinder struct {
	c     *Consumer
	store driver.RedriveFinder // nil: each partition has to be looked at

	mu     sync.Mutex
	asking chan struct{}   // closed when the request in progress has ended; nil: there is none
	due    map[string]bool // nil: the store has not answered yet
	asked  time.Duration   // when that was asked, by Clock.Elapsed
}

// redriveFinderOf returns a store as what redriveFinder needs, nil if it is none.
func redriveFinderOf(store any) driver.RedriveFinder {
	f, _ := store.(driver.RedriveFinder)
	return f
}

// mayBeDue reports whether a partition had redrives that were due at some time in the last
// RedriveEvery, or may have had some. Only one partition at a time asks the store. An error is
// that of its own request. [Consumer.Redrive] looks at each partition itself.
func (f *redriveFinder) mayBeDue(ctx context.Context, group Group, partition string) (bool, error) {
	if f.store == nil || !f.c.running.Load() {
		return true, nil
	}
	for {
		f.mu.Lock()
		if f.due != nil && f.c.cfg.Clock.Elapsed()-f.asked < f.c.cfg.RedriveEvery {
			defer f.mu.Unlock()
			return f.due[partition], nil
		}
		asking := f.asking
		if asking == nil {
			f.asking = make(chan struct{})
			f.mu.Unlock()
			break
		}
		f.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return f.ask(ctx, group, partition)
}

// ask asks the store, for the partitions that wait for the answer too.
func (f *redriveFinder) ask(ctx context.Context, group Group, partition string) (bool, error) {
	defer func() { // also if the store panics
		f.mu.Lock()
		defer f.mu.Unlock()
		close(f.asking)
		f.asking = nil
	}()
	began := f.c.cfg.Clock.Elapsed()
	list, err := f.store.DuePartitions(ctx, group)
	if err != nil {
		return false, err
	}
	due := make(map[string]bool, len(list))
	for _, p := range list {
		due[p] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.due = began, due
	return due[partition], nil
}
