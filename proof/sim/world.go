// Package sim runs the engine in a simulated world: virtual time, databases and a
// log in memory, processes that crash, pause and have wrong clocks, and requests
// that are lost, answered late or not at all.
//
// A world runs in a bubble of testing/synctest. Every request and every wait of
// the engine blocks at the edge of the world, as a ticket. In the driven mode one
// driver waits until every goroutine is blocked, draws the fates of the new
// tickets from the seed, and releases them one at a time in the order of their due
// times. So one seed gives one trace, at any GOMAXPROCS, except where goroutines
// wake each other directly. In the free mode the tickets release themselves, and
// many goroutines run in parallel, for the race detector.
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
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// world is the state of one run.
type world struct {
	cfg   Config
	group sluice.Group
	start time.Time

	hub     *sluicetest.Hub
	copyHub *sluicetest.Hub // the same events, for the processes that replay: a hub has one group of readers
	nextHub *sluicetest.Hub // between two stages
	// nextStore is the database of the second stage. It may be that of the first.
	nextStore *sluicetest.Store
	leases    *sluicetest.Leases
	store     *sluicetest.Store

	mu         sync.Mutex // guards the fields below; never held during a call
	rng        *rand.Rand
	parked     []*ticket
	late       []*delivery
	coins      map[string]uint64
	blame      blame
	lanes      map[string]*lane // by topic and partition
	owners     map[string]*process
	claimed    map[string]int64     // the highest epoch that has claimed each lane
	claims     map[string]claim     // the claim of that epoch
	outages    map[string]time.Time // parts of the world that have an outage, and until when
	quiet      bool
	calm       context.Context // ends when the world becomes quiet
	becomeCalm context.CancelFunc
	fired      map[string]int
	stale      []string        // violations: commits of fenced owners, wrong moves of checkpoints
	written    map[written]int // events written by at-least-once deliveries
	forwarded  forwarded       // from one stage to the next
	trace      trace

	life      int                  // number of the topic's incarnation
	lives     map[string]int       // the numbers, by incarnation
	past      []past               // what was sent in earlier ones
	lenient   bool                 // the log accepts positions before its beginning
	overtaken map[eventID]bool     // events that retention has removed before they were done
	lost      map[eventID]bool     // events that retention or an operator may have skipped
	repeats   repeats              // of events that an operator had repeated
	setBack   map[string]bool      // partitions whose checkpoint an operator has set back
	halts     map[string]time.Time // when an operator acts on a halted partition
	setAt     time.Time            // when an operator last set a checkpoint

	tenancies  map[string]tenancy   // by topic and partition
	claimedAt  map[tenure]time.Time // when a lease's owner, since it acquired it, claimed its checkpoint first
	parkings   map[eventID]parking
	discarded  map[int64]bool       // dead letters, at some time
	leaseOf    map[tenure]*process  // who acquired it, or committed under it, last
	leaseEnds  map[tenure]time.Time // by the store
	leaseSkew  time.Duration        // of the lease store's clock
	twins      []*process           // of one owner name with another process
	leasesLost time.Time            // when the lease store last lost its leases

	discards []discarded // memories of processes that replay
	contests map[string]*contest

	gone     removals         // partitions that are
	settings settings         // of the newest deployment
	delivery map[string]bool  // which one claimed each partition last: a transactional one
	touched  map[eventID]bool // by an at-least-once delivery

	slots          []*slot
	commands       int              // started so far
	sent           map[string]int64 // events per partition
	nextSend       time.Time        // when the next events are sent
	adding         int              // partitions that are still to be added
	growth         time.Time        // when the next one is
	nextFault      time.Time        // when the next fault strikes
	nextThemed     time.Time        // when the next fault of a theme strikes
	windows        map[string]int   // how often each part of the world was down
	nextWatch      time.Time        // when progress is looked at again
	restoreReplica func()           // restores the database to the state of its replica
	replicaRepeats repeats          // of the replica
	failover       time.Time        // when that happens

	live sync.WaitGroup // processes
}

// ticket is a goroutine that waits at the edge between engine and world.
type ticket struct {
	process   *process
	op        string
	partition string // that it is about, if it names one
	key       string
	due       time.Time
	drawn     bool // due, fate and site are set
	fate      fate
	site      string        // the kind of fault that strikes it, if any
	apply     func() error  // the change that the request makes, if it makes one
	release   chan struct{} // closed when the goroutine may continue
}

// fate is what happens to a request.
type fate uint8

const (
	done         fate = iota // carried out and answered
	lost                     // never arrived
	unanswered               // carried out; the answer was lost
	delayed                  // a change: the answer is lost, and the change is made later
	fatal                    // a change: its process is killed while it is under way
	answeredLate             // carried out at once, answered after a long time
	hung                     // never answered; carried out or not
	abandoned                // the caller has given up, or was killed
)

// delivery is a commit that is still on its way.
type delivery struct {
	due   time.Time
	key   string
	apply func() error
}

// trace is the sequence of events of a run, as a hash, and as text if kept.
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
	if op != "acquire" { // until it is answered, the process acquires no other either
		t.partition, _, _ = strings.Cut(partition, "/")
	}
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return lost // killed processes send nothing
	}
	if w.cfg.Free {
		w.draw(t)
	}
	w.parked = append(w.parked, t)
	w.mu.Unlock()
	f := w.wait(ctx, t)
	if t.site != "" && (f != abandoned || t.fate == hung || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
		w.count(t.site)
	}
	return f
}

// sleep waits for a time. Nothing else releases its ticket.
func (w *world) sleep(ctx context.Context, p *process, d time.Duration) error {
	// The duration is a part of the key, to distinguish a process's sleepers that
	// wake up at the same moment.
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
				timer = time.After(min(time.Until(until), time.Second)) // a pause may be cut short
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

// unpark removes a ticket. The lock is held.
func (w *world) unpark(t *ticket) {
	if i := slices.Index(w.parked, t); i >= 0 {
		w.parked = slices.Delete(w.parked, i, i+1)
	}
}

// drive runs the world until a time.
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

// driveFree only injects faults and sends events; the tickets release themselves.
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
	if until := w.outages[part(t.op)]; now.Before(until) {
		t.fate = lost
		t.site = "request in an outage of the " + part(t.op)
		return
	}
	if part(t.op) == "leases" && now.Before(t.process.cutOff) {
		t.fate, t.site = lost, "request of a process that is cut off"
		return
	}
	if t.op == "renew" && t.process.cutOffNext > 0 {
		t.process.cutOff, t.process.cutOffNext = t.due.Add(t.process.cutOffNext), 0
		t.fate, t.site = answeredLate, answeredLate.String()+" "+t.op
		return
	}
	if w.quiet || w.rng.Float64() >= max(w.cfg.FaultRate, rare[t.op]) {
		return
	}
	w.trouble(t.process, t.partition, now)
	if w.has(hangs) && !slices.Contains(neverHung, t.op) && w.rng.IntN(hungOneIn(t.op)) == 0 {
		t.fate, t.due, t.site = hung, never(w), hung.String()+" "+t.op
		return
	}
	n := w.rng.IntN(10)
	if t.apply == nil && t.op != "fetch" && w.rng.IntN(8) == 0 {
		t.fate, t.site = answeredLate, answeredLate.String()+" "+t.op
		w.trouble(t.process, t.partition, now.Add(20*time.Second))
		return
	}
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
	default: // carried out after a long time
		t.due = now.Add(time.Duration(1+w.rng.IntN(40)) * time.Second)
		t.site = "slow " + t.op
		w.trouble(t.process, t.partition, t.due)
		return
	}
	t.site = t.fate.String() + " " + t.op
}

func (f fate) String() string {
	return [...]string{"done", "lost", "unanswered", "delayed", "fatal", "late answer to", "hung", "abandoned"}[f]
}

// next returns when the next thing happens, and what: a ticket is released, a late
// commit arrives, a fault strikes, or events are sent. The lock is held.
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

// ready is when a ticket can be released: not while its process is paused.
func (t *ticket) ready() time.Time {
	if t.due.Before(t.process.pausedUntil) {
		return t.process.pausedUntil
	}
	return t.due
}

// release releases a ticket, and those with the same key and time.
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

// deliver makes a change that was delayed.
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

// delay is a time of 1 to 16 s, at no full second.
func (w *world) delay(key string) time.Duration {
	d := 1000 * time.Millisecond
	for i := range 4 {
		if w.coin(0.5, "late "+key) {
			d += time.Duration(1<<i) * 999 * time.Millisecond
		}
	}
	return d
}

// coin returns true with probability p. The result depends on the seed, the key
// and how often this key was used, so that goroutines can call it in any order.
func (w *world) coin(p float64, key string) bool {
	w.mu.Lock()
	w.coins[key]++
	n := w.coins[key]
	w.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, w.cfg.Seed, key, n)
	return float64(h.Sum64()%1_000_000)/1_000_000 < p
}
