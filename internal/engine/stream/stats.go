package stream

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// writeStats counts what the sink has written since the last report. It is safe for
// concurrent use; the results of records take no lock.
type writeStats struct {
	clock    driver.Clock
	written  atomic.Int64 // records, since the beginning
	filtered atomic.Int64 // events that are not handled
	cost     atomicFloat  // of all attempts
	waited   atomic.Int64 // nanoseconds, for limits

	reported int64 // records written at the last report; guarded by mu
	wasBusy  bool  // events were in flight at the last report; the reporting goroutine's

	mu        sync.Mutex
	waiting   bool          // for the rate, now
	waitingAt time.Duration // since when, or since the last report, by Clock.Elapsed
}

// atomicFloat is a sum that several goroutines add to.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) add(x float64) {
	for x != 0 {
		old := f.bits.Load()
		if f.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

func (f *atomicFloat) take() float64 { return math.Float64frombits(f.bits.Swap(0)) }

// add counts a result.
func (s *writeStats) add(r driver.WriteResult) {
	if r.Err == nil {
		s.written.Add(1)
	}
	s.cost.add(r.Cost)
	if r.Waited != 0 {
		s.waited.Add(int64(r.Waited))
	}
}

// waitBegins is called when the worker starts to wait for its rate.
func (s *writeStats) waitBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.waitingAt = true, s.clock.Elapsed()
}

// waitEnds is called when the worker continues.
func (s *writeStats) waitEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Elapsed()
	s.waited.Add(int64(now - s.waitingAt))
	s.waiting, s.waitingAt = false, now
}

// take returns the counts and starts new ones. A wait in progress counts.
func (s *writeStats) take() (written int, cost float64, waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting {
		now := s.clock.Elapsed()
		s.waited.Add(int64(now - s.waitingAt))
		s.waitingAt = now
	}
	total := s.written.Load()
	written, s.reported = int(total-s.reported), total
	return written, s.cost.take(), time.Duration(s.waited.Swap(0))
}

// reportStats reports what was written since the last report, and what is in
// flight.
func (w *worker[R]) reportStats() {
	written, cost, waited := w.stats.take()
	filtered := int(w.stats.filtered.Swap(0))
	at := w.checkpoints.Position()
	if low, n := w.inFlight.low(); n > 0 {
		at = low
	}
	inFlight := w.inFlight.list.InFlight()
	wasBusy := w.stats.wasBusy
	w.stats.wasBusy = inFlight > 0
	if written == 0 && filtered == 0 && cost == 0 && waited == 0 && inFlight == 0 && !wasBusy {
		return
	}
	w.a.Observe(driver.Observation{Kind: driver.KindWritten, To: at, Events: written, Filtered: filtered, Cost: cost, Waited: waited, InFlight: inFlight, Lag: w.a.Lag.Measure(at)})
}
