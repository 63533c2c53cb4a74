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
	asking   *redriveRequest // in progress; nil: none is
	due      dueRedrives     // the last answer; nil: there is none
	answered time.Duration   // when it came, by Clock.Elapsed: a slow answer counts as long as a fast one
}

// redriveRequest is one request, for the partitions that wait for its answer. Whichever of
// them began it, it ends early only when none of them waits any more.
type redriveRequest struct {
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
		r := f.asking
		began := r == nil
		if began {
			r = f.begin(a)
		}
		joined := !r.closed
		if joined {
			r.waiting++
		}
		f.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			if joined {
				f.leave(r)
			}
			return false, ctx.Err()
		}
		switch {
		case began:
			return r.due.may(partition) && r.err == nil, r.err
		case joined:
			return r.due.may(partition), nil
		}
	}
}

// begin begins a request. The lock is held.
func (f *redriveFinder) begin(a *assignment) *redriveRequest {
	r := &redriveRequest{done: make(chan struct{})}
	r.work, r.cancel = context.WithCancel(a.process)
	f.asking = r
	// The assignment has a goroutine among these: Run waits for them.
	f.c.assignments.Go(func() { f.ask(r, a.topic.Group) })
	return r
}

// ask asks the store.
func (f *redriveFinder) ask(r *redriveRequest, group Group) {
	held := f.c.heldPartitions()
	r.due, r.err = make(dueRedrives, len(held)), goexitError("DuePartitions of the store")
	for _, p := range held {
		r.due[p] = false
	}
	returns(func() {
		var list []string
		list, r.err = f.store.DuePartitions(r.work, group, held)
		for _, p := range list {
			r.due[p] = true
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = nil
	if !r.closed { // else the next partition sends a request of its own
		f.answered, f.due = f.c.cfg.Clock.Elapsed(), r.due
	}
	r.cancel()
	close(r.done)
}

// leave ends a partition's wait without an answer.
func (f *redriveFinder) leave(r *redriveRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.closed = true
	if r.waiting--; r.waiting == 0 {
		r.cancel()
	}
}

// asks reports whether a request has not returned.
func (f *redriveFinder) asks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asking != nil
}
