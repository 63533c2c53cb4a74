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

	mu       sync.Mutex
	asking   *redriveQuestion // nil: the next partition that looks asks
	due      dueRedrives      // the last answer; nil: there is none
	answered time.Duration    // when it came, by Clock.Elapsed: a slow answer counts as long as a fast one
}

// redriveQuestion is one request, for the partitions that wait for its answer. Whichever of
// them began it, it ends early only when none of them waits any more.
type redriveQuestion struct {
	waiting int  // partitions
	closed  bool // one of them has given up: no other joins
	work    context.Context
	cancel  context.CancelFunc // ends work
	done    chan struct{}      // closed when the request has ended
	due     dueRedrives
	err     error
}

// dueRedrives says of each partition that was asked for whether it has redrives that are due; after
// a failure that none has.
type dueRedrives map[string]bool

// may reports whether a partition may have some: it has, or was not asked for, because it was acquired
// since.
func (d dueRedrives) may(partition string) bool {
	due, asked := d[partition]
	return due || !asked
}

// redriveFinderOf returns a store as what redriveFinder needs, nil if it is none.
func redriveFinderOf(store any) driver.RedriveFinder {
	f, _ := store.(driver.RedriveFinder)
	return f
}

// mayBeDue reports whether an assignment's partition had redrives that were due at some time in
// the last RedriveEvery, or may have had some. A request that fails is the error of the partition
// that began it; the others find nothing, and the store is asked again after RedriveEvery.
// [Consumer.Redrive] looks at each partition itself.
func (f *redriveFinder) mayBeDue(ctx context.Context, a *assignment) (bool, error) {
	if f.store == nil || !f.c.runs() {
		return true, nil
	}
	partition := a.lease.Partition
	for {
		f.mu.Lock()
		if f.due != nil && f.c.cfg.Clock.Elapsed()-f.answered < f.c.cfg.RedriveEvery {
			defer f.mu.Unlock()
			return f.due.may(partition), nil
		}
		q := f.asking
		began := q == nil
		if began {
			q = f.begin(a)
		}
		joined := !q.closed
		if joined {
			q.waiting++
		}
		f.mu.Unlock()
		select {
		case <-q.done:
		case <-ctx.Done():
			if joined {
				f.leave(q)
			}
			return false, ctx.Err()
		}
		switch {
		case began:
			return q.due.may(partition) && q.err == nil, q.err
		case joined:
			return q.due.may(partition), nil
		}
	}
}

// begin begins a request. The lock is held.
func (f *redriveFinder) begin(a *assignment) *redriveQuestion {
	q := &redriveQuestion{done: make(chan struct{})}
	q.work, q.cancel = context.WithCancel(a.process)
	f.asking = q
	// The assignment has a goroutine among these: Run waits for them.
	f.c.assignments.Go(func() { f.ask(q, a.topic.Group) })
	return q
}

// ask asks the store.
func (f *redriveFinder) ask(q *redriveQuestion, group Group) {
	held := f.c.heldPartitions()
	q.due, q.err = make(dueRedrives, len(held)), goexitError("DuePartitions of the store")
	for _, p := range held {
		q.due[p] = false
	}
	returns(func() {
		var list []string
		list, q.err = f.store.DuePartitions(q.work, group, held)
		for _, p := range list {
			q.due[p] = true
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = nil
	if !q.closed { // else a partition has given up: the next one asks anew
		f.answered, f.due = f.c.cfg.Clock.Elapsed(), q.due
	}
	q.cancel()
	close(q.done)
}

// leave ends a partition's wait without an answer.
func (f *redriveFinder) leave(q *redriveQuestion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q.closed = true
	if q.waiting--; q.waiting == 0 {
		q.cancel()
	}
}

// asks reports whether a request has not returned.
func (f *redriveFinder) asks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asking != nil
}
