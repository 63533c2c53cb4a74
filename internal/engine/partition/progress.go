package partition

import (
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// progress is what a partition has got done, as far as a stall is concerned. A stall ends by
// progress: another attempt is none. It is safe for concurrent use.
type progress struct {
	done    atomic.Uint64                // increases when events are done, parked or redriven
	Written atomic.Pointer[atomic.Int64] // records of AtLeastOnce, which reports them later; or nil
	failure atomic.Pointer[error]        // the last one since then
	halt    atomic.Pointer[halt]         // until an operator has acted

	// Waits that are no stall, in nanoseconds.
	Every   atomic.Int64 // between two events, as configuration asks for
	asked   atomic.Int64 // the longest that a handler or sink has asked for since events were done
	waitEnd atomic.Int64 // when the last of these waits ends, by Clock.Elapsed
}

// halt is what a partition had got done when it was halted. It ends when more is done, or when the
// log stays open. To open the log is not enough: some errors come with the first event. When an
// operator sets the checkpoint, the assignment ends.
type halt struct{ done uint64 }

// note takes from an observation whether the partition has got on: it has if moved.
func (p *progress) note(o *driver.Observation, moved bool) {
	switch o.Kind {
	case driver.KindCommitted, driver.KindWritten:
		moved = moved || o.Events > 0
	case driver.KindParked, driver.KindRedriven:
		moved = true
	case driver.KindRetried, driver.KindRedriveFailed, driver.KindFailed:
		err := o.Err
		p.failure.Store(&err)
	case driver.KindHalted:
		p.halt.Store(&halt{p.count()})
	}
	if moved {
		p.failure.Store(nil)
		p.done.Add(1)
	}
}

// count increases when anything is done.
func (p *progress) count() uint64 {
	n := p.done.Load()
	if written := p.Written.Load(); written != nil {
		n += uint64(written.Load())
	}
	return n
}

// Ask has a stall begin later by a wait that a handler or sink asks for. Of waits that follow each
// other only the longest counts: with nothing done in between they are a stall.
func (p *progress) Ask(now, wait time.Duration) {
	storeMax(&p.asked, int64(wait))
	storeMax(&p.waitEnd, int64(now+wait))
}

func storeMax(to *atomic.Int64, n int64) {
	for old := to.Load(); n > old && !to.CompareAndSwap(old, n); old = to.Load() {
	}
}

// eventsWait returns how many events wait that a reader can have: those that were read and are not
// done, and those that the log is known to hold. It returns -1 while nothing is known of them, and
// the log is not read.
func (a *Assignment) eventsWait() int64 {
	reading := a.reading.Load()
	if a.Idle.Err() != nil || reading != nil && reading.paused() {
		return 0
	}
	done, read := a.Lag.done.Load(), a.Lag.read.Load()
	b := a.Lag.bounds.Load()
	switch {
	case b != nil:
		known := driver.Bounds{First: b.First, Last: driver.Position{Sequence: max(b.Last.Sequence, read)}}
		return known.Lag(driver.Position{Sequence: done})
	case reading == nil:
		return -1
	}
	return max(0, read-done)
}
