package group

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// redriveFinder asks once in RedriveEvery which partitions have redrives, for all partitions
// of a consumer, if the store can say that. It is safe for concurrent use.
type redriveFinder struct {
	c     *Member
	store driver.RedriveFinder // nil: each partition has to be looked at

	mu       sync.Mutex
	asking   *redriveRequest // in progress; nil: none is
	last     *redriveRequest // nil: none has ended
	answered time.Duration   // when its answer came, by Clock.Elapsed: a slow answer counts as long as a fast one
}

// redriveRequest is one request, for the partitions that wait for its answer. Whichever of
// them began it, it ends early only when none of them waits any more.
type redriveRequest struct {
	waiting int  // partitions
	closed  bool // one of them has given up: no other joins
	work    context.Context
	cancel  context.CancelFunc // ends work
	done    chan struct{}      // closed when the request has ended
	due     map[string]bool    // whether it has redrives that are due, of each partition that was asked for
	err     error
}

// mayBeDue reports whether a partition may have redrives that are due: it has, or was not asked
// for, because it was acquired since.
func (r *redriveRequest) mayBeDue(id string) (bool, error) {
	due, asked := r.due[id]
	if asked && r.err != nil {
		return false, partition.ErrAskedTogether
	}
	return due || !asked, nil
}

// mayBeDue reports whether an assignment's partition had redrives that were due at some time in the
// last RedriveEvery, or may have had some. A request that fails does so for all partitions, and the
// store is asked again after RedriveEvery. The one that began it gets the error to report, the
// others get errAskedTogether. [sluice.Consumer.Redrive] looks at each partition itself.
func (f *redriveFinder) mayBeDue(ctx context.Context, a *partition.Assignment) (bool, error) {
	if f.store == nil || !f.c.runs() {
		return true, nil
	}
	partition := a.Lease.Partition
	for {
		f.mu.Lock()
		if f.last != nil && f.c.cfg.Clock.Elapsed()-f.answered < f.c.cfg.RedriveEvery {
			defer f.mu.Unlock()
			return f.last.mayBeDue(partition)
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
		case began && r.err != nil:
			return false, r.err
		case joined:
			return r.mayBeDue(partition)
		}
	}
}

// begin begins a request. The lock is held.
func (f *redriveFinder) begin(a *partition.Assignment) *redriveRequest {
	r := &redriveRequest{done: make(chan struct{})}
	r.work, r.cancel = context.WithCancel(a.Process)
	f.asking = r
	// The assignment has a goroutine among these: Run waits for them.
	f.c.assignments.Go(func() { f.ask(r, a.Topic.Group) })
	return r
}

// ask asks the store.
func (f *redriveFinder) ask(r *redriveRequest, group driver.Group) {
	held := f.c.heldPartitions()
	r.due, r.err = make(map[string]bool, len(held)), engine.GoexitError("DuePartitions of the store")
	for _, p := range held {
		r.due[p] = false
	}
	engine.Returns(func() {
		var list []string
		r.err = engine.CallDriver(func() (err error) {
			list, err = f.store.DuePartitions(r.work, group, held)
			return err
		})
		for _, p := range list {
			r.due[p] = true
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = nil
	if !r.closed { // else the next partition sends a request of its own
		f.answered, f.last = f.c.cfg.Clock.Elapsed(), r
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
