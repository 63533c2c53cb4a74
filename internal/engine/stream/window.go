package stream

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/engine/partition"
)

const (
	// queueFor is how much work may queue in a sink beyond its own latency: what it
	// completes in that time. More would delay a stop and the other partitions; with
	// less a sink that sends in batches could run dry.
	queueFor = 750 * time.Millisecond
	// firstWindow is the window before anything is known of the sink.
	firstWindow = 8
	// windowGrowth is how fast the window grows while nothing queues.
	windowGrowth = 4
	// probeShrink is how far the window shrinks to test whether anything queues.
	probeShrink = 0.75
	// probeEvery is how long the result of such a test holds.
	probeEvery = time.Minute
)

// sinkWindow bounds how many records the partitions of a delivery have at the sink.
// What a sink has queued is not dropped by a stop, and the records of other
// partitions wait behind it. So it gets about what it completes within queueFor. The
// rest stays in the workers' queues.
//
// The window is divided equally among its members, the partitions that have more to
// submit. In each round the latency of some records is measured. It is the sink's own
// latency and the wait in its queue, and by Little's law it is the window divided by
// the sink's rate. Only the wait depends on the window. So every larger change of the
// window shows how much of the latency is the sink's own, which is allowed for.
type sinkWindow struct {
	share atomic.Int64 // records that a member may have at the sink
	guest atomic.Int64 // records that another partition may have there
	quiet atomic.Int64 // the round needs no look before this time, by Clock.Elapsed
	began atomic.Int64 // the round, by Clock.Elapsed; never between two rounds

	mu       sync.Mutex
	most     float64 // the largest window
	size     float64 // the window, in records
	members  []*partitionWindow
	settled  bool          // the window was filled after its last change: a round has begun
	changed  time.Duration // the window, by Clock.Elapsed
	own      time.Duration // the sink's own latency, as far as it is known
	probeAt  time.Duration // when that is to be tested, by Clock.Elapsed
	previous windowChange
	knee     windowKnee
}

// windowChange is what was known before the last change of a window.
type windowChange struct {
	size    float64 // 0: the change shows nothing
	latency time.Duration
	probe   bool // it was made to test
}

// windowKnee is a window that was too large. For a while growth is slow near it.
type windowKnee struct {
	size float64
	end  time.Duration // by Clock.Elapsed
}

func newSinkWindow(most int) *sinkWindow {
	s := &sinkWindow{most: float64(max(most, firstWindow)), size: firstWindow}
	s.divide()
	return s
}

// partitionWindow is a partition's part of a sinkWindow. Its worker's goroutine calls
// the methods; completions are counted on any goroutine.
type partitionWindow struct {
	shared   *sinkWindow
	wakeup   chan struct{} // wakes the worker: the window has changed
	sent     atomic.Int64  // records that were submitted
	finished atomic.Int64  // of those, the records that are completed
	member   atomic.Bool   // changed under shared.mu
	base     atomic.Int64  // finished when the round began
	measured atomic.Int64  // records of the round whose latency was measured
	latency  atomic.Int64  // the sum of that, in nanoseconds
	full     bool          // the worker waits for room
	filled   bool          // the share was filled since the last change; guarded by shared.mu
}

// atSink returns how many records the sink has.
func (p *partitionWindow) atSink() int64 {
	finished := p.finished.Load() // first: then it can't exceed sent
	return p.sent.Load() - finished
}

// begin sets what is counted in a round to zero.
func (p *partitionWindow) begin() {
	p.base.Store(p.finished.Load())
	p.measured.Store(0)
	p.latency.Store(0)
}

// completed returns how many records were completed in the round.
func (p *partitionWindow) completed() int64 { return p.finished.Load() - p.base.Load() }

// measure takes the latency of a record.
func (p *partitionWindow) measure(submitted, now time.Duration) {
	if int64(submitted) > p.shared.began.Load() {
		p.latency.Add(int64(now - submitted))
		p.measured.Add(1)
	}
}

// room returns how many more records may be submitted. A worker that was refused is
// granted several at once, so that it does not run for each.
func (p *partitionWindow) room(now time.Duration) int {
	n := p.free()
	if n == 0 {
		p.full = true
		p.shared.filledBy(p, now)
		n = p.free()
	}
	p.full = n == 0
	return n
}

func (p *partitionWindow) free() int {
	limit := p.shared.guest.Load()
	if p.member.Load() {
		limit = p.shared.share.Load()
	}
	n := limit - p.atSink()
	if n <= 0 || p.full && n <= limit/8 {
		return 0
	}
	return int(n)
}

// leave ends a partition's membership.
func (p *partitionWindow) leave() {
	s := p.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.member.Load() {
		s.drop(func(other *partitionWindow) bool { return other == p })
	}
}

// filledBy is called when a partition has more to submit than its share.
func (s *sinkWindow) filledBy(p *partitionWindow, now time.Duration) {
	if p.member.Load() && int64(now) < s.quiet.Load() && p.completed() < s.share.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !p.member.Load():
		s.join(p, now)
	case p.free() > 0: // the window was changed just now
	case !s.settled:
		p.filled = true
		s.settle(now)
	default:
		s.look(now)
	}
}

// join makes a partition a member. The round continues: the size of the window is the
// same, and partitions that have more to submit now and then would end every round.
func (s *sinkWindow) join(p *partitionWindow, now time.Duration) {
	p.member.Store(true)
	s.members = append(s.members, p)
	s.divide()
	p.begin()
	p.filled = p.free() == 0
	if len(s.members) == 1 {
		s.restart(now)
	}
}

// divide sets the shares.
func (s *sinkWindow) divide() {
	n := len(s.members)
	s.share.Store(max(1, int64(math.Round(s.size/float64(max(n, 1))))))
	s.guest.Store(max(1, int64(s.size)/int64(n+1)))
	for _, p := range s.members {
		partition.Wake(p.wakeup)
	}
}

// drop removes the members for which fn returns true.
func (s *sinkWindow) drop(fn func(*partitionWindow) bool) {
	n := len(s.members)
	s.members = slices.DeleteFunc(s.members, func(p *partitionWindow) bool {
		if !fn(p) {
			return false
		}
		p.member.Store(false)
		return true
	})
	if len(s.members) < n {
		s.divide()
		s.previous.size = 0
	}
}

// restart waits until the members have filled their shares again.
func (s *sinkWindow) restart(now time.Duration) {
	s.settled, s.changed = false, now
	s.quiet.Store(int64(now))
	s.began.Store(int64(partition.Never))
	for _, p := range s.members {
		p.filled = false
	}
}

// settle begins a round once the members have filled their shares and none has more
// at the sink. A member that has nothing more to submit does not fill its share; it
// is a member no longer.
func (s *sinkWindow) settle(now time.Duration) {
	waited := now - s.changed
	if waited > s.own+queueFor {
		s.drop(func(p *partitionWindow) bool { return !p.filled && p.atSink() < s.share.Load() })
	}
	if waited < 2*s.previous.latency+queueFor { // else records of a member are stuck
		share := s.share.Load()
		for _, p := range s.members {
			if !p.filled || p.atSink() > share {
				return
			}
		}
	}
	s.settled = true
	for _, p := range s.members {
		p.begin()
	}
	s.began.Store(int64(now))
}

// look ends the round if as many records have completed as the window holds, or
// earlier if far fewer complete than it is made for.
func (s *sinkWindow) look(now time.Duration) {
	s.quiet.Store(int64(now + queueFor/16))
	var n, measured, latency int64
	for _, p := range s.members {
		n += p.completed()
		measured += p.measured.Load()
		latency += p.latency.Load()
	}
	size := s.share.Load() * int64(len(s.members))
	overdue := 2 * (s.own + queueFor)
	if s.share.Load() <= 2 { // a window as small as this may be slow only for the sink's own latency
		overdue += 2 * s.previous.latency
	}
	switch {
	case n >= size && measured >= min(size, firstWindow/2):
		s.adapt(now, max(time.Duration(latency/measured), 1))
	case n >= firstWindow && n < size && now-time.Duration(s.began.Load()) > overdue:
		s.previous.size = 0
		s.adapt(now, now-time.Duration(s.began.Load()))
		s.previous.size = 0 // the latency is longer than that: the next one is not to be compared with it
	}
}

// adapt sets the window after a round with a latency.
func (s *sinkWindow) adapt(now, latency time.Duration) {
	if s.learn(now, latency) {
		latency = s.own // the change is undone, because there was no queue to shorten
	}
	aim := s.own + queueFor
	size := s.size * aim.Seconds() / latency.Seconds()
	probe := false
	switch change := size / s.size; {
	case latency-s.own < queueFor/4:
		size = s.size * windowGrowth
		if now < s.knee.end && size > s.knee.size {
			size = max(s.knee.size, s.size*1.25)
		}
	case change < 0.8 && now >= s.probeAt && s.share.Load() == 1:
		size = 2 * s.size // perhaps nothing queues, and less than one record each shows nothing
	case change < 0.8:
		if now >= s.probeAt {
			size = max(size, s.size/2) // perhaps nothing queues
		}
	case change >= 1 && s.probeAt == 0:
		size = max(size, 2*s.size)
	case change < 1.25 && now >= s.probeAt:
		size, probe = s.size*probeShrink, true
	}
	s.previous = windowChange{s.size, latency, probe}
	s.resize(now, size)
}

// learn takes from the last change of the window what part of the latency is the
// sink's own: the part that has not followed the window. It returns true, and sets
// the window that was before, if the window was made smaller though nothing queued.
func (s *sinkWindow) learn(now, latency time.Duration) bool {
	b := s.previous
	ratio := s.size / b.size
	if b.size == 0 || ratio > 0.8 && ratio < 1.25 {
		return false
	}
	s.probeAt = now + probeEvery
	followed := (latency - b.latency).Seconds() / (b.latency.Seconds() * (ratio - 1))
	if followed >= 0.4 && ratio < 1 {
		s.knee = windowKnee{b.size, now + probeEvery}
	}
	switch {
	case followed < 0.4 && ratio > 1:
		s.own = min(latency, b.latency)
	case followed < 0.4:
		s.own = min(latency, b.latency, time.Duration((1-followed)*float64(b.latency)))
		s.size = b.size
		return true
	case b.probe:
		s.own = min(s.own, time.Duration(max(1-followed, 0)*float64(b.latency)))
	case ratio < 0.5 && latency.Seconds() > 1.5*ratio*b.latency.Seconds():
		s.own = latency // little is left that could queue
	case ratio < 1:
		s.own = min(s.own, latency)
	}
	return false
}

// resize sets the window.
func (s *sinkWindow) resize(now time.Duration, size float64) {
	s.size = max(min(size, s.most), 1)
	s.restart(now) // first: divide wakes the members, and what they fill counts
	s.divide()
	s.size = float64(s.share.Load()) * float64(max(1, len(s.members)))
}
