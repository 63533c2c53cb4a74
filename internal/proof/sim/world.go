// Package sim runs the engine in a simulated world: virtual time, databases
// and a log in memory, processes that crash, pause and lose their clocks, and
// requests that are lost, answered late or not at all.
//
// A world runs in a bubble of testing/synctest. Everything that leaves the
// engine (a request, a wait) parks as a ticket. In the driven mode one driver
// waits until every goroutine is blocked, draws the fates of the new tickets
// from the seed, and releases them one at a time in the order of their due
// times; so one seed gives one trace, at any GOMAXPROCS, as far as goroutines
// that wake each other leave it to the driver. In the free mode the tickets
// release themselves, many goroutines run at once, and the race detector has
// something to see.
package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// world is one run.
type world struct {
	cfg   Config
	group sluice.Group
	start time.Time

	hub     *sluicetest.Hub
	nextHub *sluicetest.Hub // between two stages
	leases  *sluicetest.Leases
	store   *sluicetest.Store

	mu        sync.Mutex // guards what follows; never held over a call
	rng       *rand.Rand
	parked    []*ticket
	late      []*delivery
	coins     map[string]uint64
	owners    map[string]*process
	claimed   map[string]int64     // the highest epoch that has claimed each lane
	claimer   map[string]*process  // who that was
	down      map[string]time.Time // parts of the world that are out of order, until when
	quiet     bool
	fired     map[string]int
	stale     []string        // commits of owners that had been taken over, checkpoints that went wrong
	written   map[written]int // events, by a delivery that is at least once
	forwarded forwarded       // from one stage to the next
	trace     trace

	slots          []*slot
	commands       int              // started so far
	sent           map[string]int64 // events per partition
	nextSend       time.Time        // when the next events are sent
	adding         int              // partitions that are still to be added
	growth         time.Time        // when the next one is
	nextFault      time.Time        // when the next thing goes wrong
	restoreReplica func()           // puts the database back to where its replica is
	failover       time.Time        // when that happens

	live sync.WaitGroup // processes
}

// ticket is a goroutine at an edge of the engine.
type ticket struct {
	process *process
	op      string
	key     string
	due     time.Time
	drawn   bool // due, fate and site are set
	fate    fate
	site    string        // what strikes it, if anything
	apply   func() error  // of a change on its way
	release chan struct{} // closed when the ticket may go on
}

// fate is what becomes of a request.
type fate uint8

const (
	done       fate = iota // carried out and answered
	lost                   // never arrived
	unanswered             // carried out; the answer was lost
	delayed                // a change: the answer is lost now, it is carried out later
	fatal                  // a change: its process dies while it is under way
	abandoned              // the caller has given up, or is dead
)

// delivery is a commit that is still on its way.
type delivery struct {
	due   time.Time
	key   string
	apply func() error
}

// trace is what happened, as a hash, and as text if it is kept.
type trace struct {
	hash  uint64
	keep  bool
	lines []string
}

func (t *trace) add(at time.Duration, what string) {
	h := fnv.New64a()
	h.Write(strconv.AppendUint(nil, t.hash, 36))
	h.Write([]byte(what))
	h.Write(strconv.AppendInt(nil, int64(at), 36))
	t.hash = h.Sum64()
	if t.keep {
		t.lines = append(t.lines, fmt.Sprintf("%12v %s", at.Round(time.Microsecond), what))
	}
}

// note adds to the trace. The lock is held.
func (w *world) note(format string, args ...any) {
	if !w.cfg.Free {
		w.trace.add(time.Since(w.start), fmt.Sprintf(format, args...))
	}
}

// edge parks a request until its fate is known.
func (w *world) edge(ctx context.Context, p *process, op, partition string, apply func() error) fate {
	t := &ticket{process: p, op: op, key: p.name + " " + op + " " + partition, apply: apply, release: make(chan struct{})}
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return lost // the dead send nothing
	}
	if w.cfg.Free {
		w.draw(t)
	}
	w.parked = append(w.parked, t)
	w.mu.Unlock()
	f := w.wait(ctx, t)
	if t.site != "" && (f != abandoned || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
		w.count(t.site)
	}
	return f
}

// sleep is an edge that nothing but time releases.
func (w *world) sleep(ctx context.Context, p *process, d time.Duration) error {
	// How long they sleep tells a process's sleepers apart, should two wake up
	// at the same moment.
	t := &ticket{process: p, op: "sleep", key: fmt.Sprintf("%s sleep %v", p.name, d), due: time.Now().Add(d), drawn: true, release: make(chan struct{})}
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	w.parked = append(w.parked, t)
	w.mu.Unlock()
	if w.wait(ctx, t) == abandoned {
		return ctx.Err()
	}
	return nil
}

func (w *world) wait(ctx context.Context, t *ticket) fate {
	var timer <-chan time.Time
	if w.cfg.Free {
		timer = time.After(time.Until(t.due))
	}
	for {
		select {
		case <-t.release:
			return t.fate
		case <-timer:
			w.mu.Lock()
			if until := t.process.pausedUntil; time.Now().Before(until) {
				w.mu.Unlock()
				timer = time.After(time.Until(until))
				continue
			}
			w.unpark(t)
			w.mu.Unlock()
			return t.fate
		case <-ctx.Done():
			w.mu.Lock()
			w.unpark(t)
			w.mu.Unlock()
			return abandoned
		}
	}
}

// unpark forgets a ticket. The lock is held.
func (w *world) unpark(t *ticket) {
	if i := slices.Index(w.parked, t); i >= 0 {
		w.parked = slices.Delete(w.parked, i, i+1)
	}
}

// drive runs the world until a moment.
func (w *world) drive(until time.Time) {
	if w.cfg.Free {
		w.driveFree(until)
		return
	}
	for {
		synctest.Wait()
		w.mu.Lock()
		w.admit()
		now := time.Now()
		next, fire := w.next()
		if next.After(until) {
			w.mu.Unlock()
			if now.Before(until) {
				time.Sleep(until.Sub(now))
				continue
			}
			return
		}
		if next.After(now) {
			w.mu.Unlock()
			time.Sleep(next.Sub(now))
			continue
		}
		w.mu.Unlock()
		fire()
	}
}

// driveFree only makes trouble; tickets look after themselves.
func (w *world) driveFree(until time.Time) {
	for time.Now().Before(until) {
		w.mu.Lock()
		next, fire := w.next()
		w.mu.Unlock()
		if next.After(until) {
			time.Sleep(time.Until(until))
			break
		}
		time.Sleep(time.Until(next))
		fire()
	}
}

// admit draws the fates of new tickets, in the order of their keys. Tickets
// with one key (requests that name no partition) share a fate. The lock is held.
func (w *world) admit() {
	var fresh []*ticket
	for _, t := range w.parked {
		if !t.drawn {
			fresh = append(fresh, t)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *ticket) int { return cmp.Compare(a.key, b.key) })
	for i, t := range fresh {
		if i > 0 && fresh[i-1].key == t.key {
			t.due, t.fate, t.site, t.drawn = fresh[i-1].due, fresh[i-1].fate, fresh[i-1].site, true
			continue
		}
		w.draw(t)
	}
}

// draw decides when a request is answered, and how. The lock is held.
func (w *world) draw(t *ticket) {
	now := time.Now()
	t.drawn = true
	t.due = now.Add(time.Duration(200+w.rng.IntN(8000)) * time.Microsecond)
	if until := w.down[part(t.op)]; now.Before(until) {
		t.fate = lost
		t.site = "request in an outage of the " + part(t.op)
		return
	}
	if w.quiet || w.rng.Float64() >= max(w.cfg.FaultRate, rare[t.op]) {
		return
	}
	n := w.rng.IntN(10)
	if t.apply != nil {
		n = w.rng.IntN(16)
	}
	switch {
	case n < 3:
		t.fate = lost
	case n < 6:
		t.fate = unanswered
	case n >= 10 && n < 13:
		t.fate = delayed
	case n >= 13:
		t.fate = fatal
	default: // carried out, after a long while
		t.due = now.Add(time.Duration(1+w.rng.IntN(40)) * time.Second)
		t.site = "slow " + t.op
		return
	}
	t.site = t.fate.String() + " " + t.op
}

func (f fate) String() string {
	return [...]string{"done", "lost", "unanswered", "delayed", "fatal", "abandoned"}[f]
}

// next is what happens next: a ticket, a late delivery, or trouble. The lock
// is held.
func (w *world) next() (time.Time, func()) {
	at, fire := w.nextEvent()
	var late *delivery
	for _, d := range w.late {
		if d.due.Before(at) || late != nil && d.due.Equal(at) && d.key < late.key {
			at, late = d.due, d
		}
	}
	if late != nil {
		fire = func() { w.deliver(late) }
	}
	if w.cfg.Free {
		return at, fire
	}
	var first *ticket
	for _, t := range w.parked {
		due := t.ready()
		if due.Before(at) || first != nil && due.Equal(at) && t.key < first.key {
			at, first = due, t
		}
	}
	if first != nil {
		fire = func() { w.release(first) }
	}
	return at, fire
}

// ready is when a ticket can go on: not while its process is paused.
func (t *ticket) ready() time.Time {
	if t.due.Before(t.process.pausedUntil) {
		return t.process.pausedUntil
	}
	return t.due
}

// release lets a ticket go on, and with it those that cannot be told from it.
func (w *world) release(first *ticket) {
	w.mu.Lock()
	w.note("%s %s", first.key, first.fate)
	at := first.ready()
	var go_ []*ticket
	for _, t := range slices.Clone(w.parked) {
		if t.drawn && t.key == first.key && t.ready().Equal(at) {
			w.unpark(t)
			go_ = append(go_, t)
		}
	}
	w.mu.Unlock()
	for _, t := range go_ {
		close(t.release)
	}
}

// deliver carries out a commit that was under way for long.
func (w *world) deliver(d *delivery) {
	err := d.apply()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = slices.DeleteFunc(w.late, func(o *delivery) bool { return o == d })
	w.note("late %s: %v", d.key, err)
	w.fired["late commit"]++
	if err == nil {
		w.fired["late commit that took effect"]++
	}
}

// coin is true with probability p. It depends on the seed, the key and how
// often the key was asked for, so that goroutines can toss it in any order.
func (w *world) coin(p float64, key string) bool {
	w.mu.Lock()
	w.coins[key]++
	n := w.coins[key]
	w.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, w.cfg.Seed, key, n)
	return float64(h.Sum64()%1_000_000)/1_000_000 < p
}
