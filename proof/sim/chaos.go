package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Config configures a world. [Draw] makes one from a seed.
type Config struct {
	Seed       uint64
	Free       bool // goroutines run in parallel; not reproducible
	Partitions int
	Added      int // of them, while the world runs
	Processes  int
	Want       sluice.Partitions
	MaxBatch   int
	BodyLimit  int           // of dead letters
	Events     int           // per partition
	FaultRate  float64       // of requests
	FaultEvery time.Duration // mean time between faults
	Length     time.Duration // of the time with faults
	WholeBatch bool          // the handler's error doesn't name the failed event
	Poison     bool          // some events kill the process
	Stream     *streaming    // at-least-once delivery; nil: transactional
	Chain      *chaining     // with Stream: it writes to the log of a second stage
	Themes     theme         // further kinds of trouble

	// Mutants: worlds without one of the protections.
	Unsafe       sluicetest.UnsafeStore
	UnsafeLeases sluicetest.UnsafeLeases
	Blind        bool // a commit of unknown outcome is repeated without reading the checkpoint

	Keep bool // keep the trace as text
}

// Quiet is how long a world without faults may take to finish its events.
const Quiet = 3 * time.Minute

// Result is the result of a run.
type Result struct {
	Violations    []string
	Trace         uint64
	Lines         []string
	Fired         map[string]int // how often each kind of fault struck
	Events        int
	Rows          int
	DeadLetters   int
	Virtual       time.Duration
	BalancedAfter time.Duration // how long after the last fault the partitions were balanced; 0 without balancing
}

// effect is a row that the handler writes.
type effect struct {
	partition string
	sequence  int64
	redriven  bool
	epoch     int64
	life      int // number of the topic's incarnation
}

// handler writes two rows for each event, and fails as the event's body demands.
func (p *process) handler() sluice.Handler[*sluicetest.Tx] {
	one := func(ctx context.Context, b sluice.Batch, tx *sluicetest.Tx, e *sluice.Event) error {
		p.w.isEvent(e)
		row := effect{e.Partition, e.Sequence, b.Redriven, b.Epoch, lifeOf(e)}
		if err := tx.Insert("effects", row); err != nil {
			return err
		}
		kind := kindOf(e)
		key := kind + " " + place(e)
		if p.w.has(hangingHandlers) {
			if err := p.dawdle(ctx, e.Partition, key); err != nil {
				return err
			}
		}
		switch {
		case kind == "reject" && !b.Redriven:
			return driver.Reject(errors.New("rejected by the handler"))
		case kind == "broken" && !(b.Redriven && p.w.coin(0.5, key)):
			return errors.New("broken")
		case kind == "flaky" && p.w.coin(0.4, key):
			return errors.New("flaky")
		case kind == "panic" && p.w.coin(0.4, key):
			panic("panicked")
		case kind == "exit" && p.w.coin(0.4, key):
			p.leaveGoroutine()
		case kind == "poison" && p.w.troubled():
			p.w.count("poisoned")
			p.w.kill(p)
			return errors.New("dead")
		}
		return tx.Insert("effects too", row)
	}
	return func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		p.worksUnder(b.Group.Topic, b.Partition, b.Epoch)
		p.handed(b)
		p.takeTurn(ctx, b.Partition, len(b.Events))
		defer p.hadTurn(b.Redriven, b.Events...)
		if err := p.usable(b.Events[0]); err != nil {
			return err
		}
		p.overload(b)
		for i, e := range b.Events {
			if err := one(ctx, b, tx, e); err != nil {
				if p.w.cfg.WholeBatch {
					return err
				}
				return &driver.EventError{Index: i, Err: err}
			}
		}
		return nil
	}
}

// troubled reports whether the world still makes trouble.
func (w *world) troubled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.quiet
}

// body draws the body of an event, which decides how its handler fails. The lock
// is held.
func (w *world) body(sequence int64) string {
	kind := "good"
	switch n := w.rng.IntN(100); {
	case n < 2:
		kind = "reject"
	case n < 4:
		kind = "broken"
	case n < 6:
		kind = "flaky"
	case n < 7:
		kind = "panic"
	case n < 8 && w.cfg.Poison:
		kind = "poison"
	case n == 98 && w.has(exits):
		kind = "exit"
	case n == 99 && w.has(timeLimits):
		kind = "heavy"
	case n < 18 && w.cfg.Chain != nil:
		kind = []string{"refused", "two", "half"}[n%3]
	case n < 12 && w.cfg.Stream != nil:
		kind = []string{"none", "two"}[n%2]
	case n < 18 && w.cfg.Stream != nil:
		kind = "reject" // so that there are dead letters to retry
	}
	if w.life > 0 {
		return fmt.Sprintf("%s %d %d", kind, sequence, w.life)
	}
	return fmt.Sprintf("%s %d", kind, sequence)
}

// nextEvent schedules the next thing that goes wrong, or the next events.
func (w *world) nextEvent() (time.Time, func()) {
	at, fire := w.nextFault, w.injectFault
	if w.quiet {
		at = never(w)
	}
	if !w.quiet && w.nextThemed.Before(at) {
		at, fire = w.nextThemed, w.injectThemed
	}
	if halt, partition := w.nextHalt(); halt.Before(at) {
		at, fire = halt, func() { w.continueAfterHalt(partition) }
	}
	if w.nextWatch.Before(at) {
		at, fire = w.nextWatch, w.watch
	}
	if w.nextSend.Before(at) {
		at, fire = w.nextSend, w.produce
	}
	if w.restoreReplica != nil && w.failover.Before(at) {
		at, fire = w.failover, w.failOver
	}
	if w.adding > 0 && w.growth.Before(at) {
		at, fire = w.growth, w.grow
	}
	for _, s := range w.slots {
		if s.process == nil && s.restart.Before(at) {
			at, fire = s.restart, func() { w.spawn(s) }
		}
	}
	return at, fire
}

// produce sends a few events, in one call for each partition: a reader that wakes
// must find all of them.
func (w *world) produce() {
	w.mu.Lock()
	w.nextSend = time.Now().Add(time.Duration(50+w.rng.IntN(1000)) * time.Millisecond)
	number := map[string]int{}
	for range 1 + w.rng.IntN(2*w.present()) {
		number[fmt.Sprint(w.rng.IntN(w.present()))]++
	}
	w.mu.Unlock()
	w.sendEvents(func(partition string) int { return number[partition] })
}

// sendEvents sends a number of events to each partition.
func (w *world) sendEvents(number func(partition string) int) {
	batch := map[string][]*sluice.Event{}
	w.mu.Lock()
	for i := range w.present() {
		partition := fmt.Sprint(i)
		for range number(partition) {
			n := w.sent[partition]
			if n >= int64(w.cfg.Events) {
				break
			}
			if w.isEmpty(eventID{w.group.Topic, partition, n, w.life}) {
				batch[partition] = append(batch[partition], &sluice.Event{Control: true})
				w.sent[partition]++
				w.fired["numbers without an event"]++
				continue
			}
			e := &sluice.Event{Body: []byte(w.body(n))}
			if w.cfg.Stream != nil {
				e.Key = fmt.Sprint("key ", n%keys)
				if w.cfg.Stream.Bytes > 0 {
					e.Properties = map[string]any{"padding": strings.Repeat("x", w.rng.IntN(600))}
				}
			}
			batch[partition] = append(batch[partition], e)
			w.blame.sentAs(eventID{w.group.Topic, partition, n, w.life}, string(e.Body))
			w.sent[partition]++
		}
	}
	if w.allSent() {
		w.nextSend = never(w)
	}
	w.mu.Unlock()
	for _, partition := range slices.Sorted(maps.Keys(batch)) {
		w.hub.Append(partition, batch[partition]...)
		w.copyHub.Append(partition, batch[partition]...)
		if !w.cfg.Free {
			synctest.Wait() // workers of several partitions share a window, in the order of their events
		}
	}
}

// grow adds a partition to the topic.
func (w *world) grow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adding--
	w.growth = time.Now().Add(w.cfg.Length / 10)
	w.note("partition %d is added", w.present()-1)
	w.comesBack(fmt.Sprint(w.present() - 1))
	w.fired["partition added"]++
}

func never(w *world) time.Time { return w.start.Add(1000 * time.Hour) }

func (w *world) allSent() bool {
	for _, n := range w.sent {
		if n < int64(w.cfg.Events) {
			return false
		}
	}
	return w.adding == 0 && len(w.sent) == w.present()
}

// injectFault injects one random fault.
func (w *world) injectFault() {
	w.mu.Lock()
	w.nextFault = time.Now().Add(time.Duration(w.rng.ExpFloat64() * float64(w.cfg.FaultEvery)))
	s := w.slots[w.rng.IntN(len(w.slots))]
	n, span := w.rng.IntN(100), time.Duration(1+w.rng.IntN(60))*time.Second
	w.mu.Unlock()
	p := s.process
	switch {
	case n < 25 && p != nil:
		w.count("kill")
		w.kill(p)
	case n < 45 && p != nil:
		w.count("stop")
		w.stopFor(s, span)
	case n < 60 && p != nil:
		what := "pause"
		w.mu.Lock()
		switch { // a machine that is suspended; one that is restored from a snapshot
		case n < 49:
			p.pause(span, &p.monotonic)
			what = "pause, the monotonic clock too"
		case n < 53:
			p.pause(span, &p.monotonic, &p.wall)
			p.misled = true
			what = "pause, all clocks too"
		default:
			p.pause(span)
		}
		w.note("%s: %s for %v", what, p.name, span)
		w.mu.Unlock()
		w.count(what)
		if span > 30*time.Second {
			w.count("pause past the lease")
		}
	case n < 66 && p != nil:
		w.mu.Lock()
		p.skew += time.Duration(w.rng.IntN(7200)-3600) * time.Second
		w.note("clock of %s off by %v", p.name, p.skew)
		w.trouble(p, "", time.Now())
		w.mu.Unlock()
		w.count("clock jump")
	case n >= 66 && n < 70:
		w.mu.Lock()
		w.leases = w.emptyLeases()
		w.leasesLost = time.Now()
		clear(w.tenancies)
		w.note("leases are lost")
		w.trouble(nil, "", time.Now())
		w.mu.Unlock()
		w.count("loss of the leases")
	case n >= 86 && n < 90:
		switch {
		case w.cfg.Chain == nil:
			span /= 10
		case p != nil: // partitions change their owner meanwhile
			w.stopFor(s, span/10)
		}
		w.lagBehind(span)
	case n < 90 && (w.cfg.Stream == nil || n < 80):
		w.mu.Lock()
		parts := []string{"leases", "database", "hub"}
		if w.cfg.Stream != nil {
			parts = append(parts, "target")
		}
		what := parts[w.rng.IntN(len(parts))]
		w.outages[what] = time.Now().Add(span)
		w.trouble(nil, "", time.Now().Add(span))
		w.note("%s down for %v", what, span)
		w.mu.Unlock()
		w.count("outage of the " + what)
	default:
		for _, g := range w.groups() {
			w.retry(g)
		}
		w.count("retry of all dead letters")
		if n%2 == 0 && n >= 90 {
			w.count("command to redrive")
			w.command()
		}
	}
}

// stopFor stops a slot's process gracefully within a time, and starts another one after a part
// of that time.
func (w *world) stopFor(s *slot, span time.Duration) {
	w.stop(s.process, span+137*time.Microsecond) // at no time at which a request of the process times out
	w.vacate(s, span/10)
}

// vacate empties a slot until a restart.
func (w *world) vacate(s *slot, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.process, s.restart = nil, time.Now().Add(after)
}

// stop stops a process gracefully, and kills it if it takes too long.
func (w *world) stop(p *process, within time.Duration) {
	w.mu.Lock()
	w.note("stop %s", p.name)
	p.stopping = true
	w.trouble(p, "", time.Now().Add(within))
	w.mu.Unlock()
	w.live.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if p.consumer.Stop(ctx) != nil {
			w.kill(p)
		}
		<-p.ended
	})
}

// Run runs a world to its end. It must be called in a bubble of
// testing/synctest.
func Run(cfg Config) Result {
	w := newWorld(cfg)
	for _, s := range w.slots {
		w.spawn(s)
	}
	w.drive(w.start.Add(cfg.Length))

	// From here on there are no faults, and all events must be done in time.
	w.mu.Lock()
	w.quiet, w.restoreReplica = true, nil
	w.becomeCalm()
	twins := w.twins
	clear(w.outages)
	now := time.Now()
	for _, s := range w.slots {
		if s.process == nil {
			s.restart = now
		}
	}
	for _, p := range w.owners {
		p.cutOff, p.cutOffNext = now, 0
		p.pause(0)
	}
	w.mu.Unlock()
	for _, p := range twins {
		w.kill(p)
	}
	even := w.settle()
	uneven := w.checkBalance()
	// A request that its process gave up can store a dead letter again, after its redrive.
	for round := 0; w.cfg.Chain != nil && round < 3 && w.deadLetters() > 0; round++ {
		w.retry(w.group)
		w.settle()
	}
	violations := slices.Concat(w.check(), w.checkHeldBack(), uneven, w.checkReplays(), w.checkKept(), w.checkReleased())

	w.mu.Lock()
	trace := w.trace
	w.mu.Unlock()
	violations = append(violations, w.checkTurns()...)
	w.mu.Lock()
	ended := maps.Clone(w.owners)
	trace.lines = w.trace.lines
	w.mu.Unlock()
	for _, p := range ended {
		w.kill(p)
	}
	w.live.Wait()
	violations = append(violations, w.checkAudit()...)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Result{Violations: violations, Trace: trace.hash, Lines: trace.lines, Fired: w.fired, Virtual: time.Since(w.start), BalancedAfter: even}
	for _, n := range w.sent {
		r.Events += int(n)
	}
	groups := w.groups()
	r.Rows = len(w.storeOf(groups[len(groups)-1]).Rows("effects"))
	for _, n := range w.written {
		r.Rows += n
	}
	r.DeadLetters = w.deadLetters()
	return r
}

// settle drives the world until all events are done and its partitions balanced.
// It returns after which time the partitions stayed balanced, negative if they
// did not.
func (w *world) settle() time.Duration {
	began := time.Now()
	even := time.Duration(-1) // since when without interruption
	for step := time.Duration(0); step < w.settleTime(); step += time.Second {
		w.drive(began.Add(step))
		if !w.balanced() {
			even = -1
		} else if even < 0 {
			even = step
		}
		if w.settled() && even >= 0 {
			break
		}
	}
	return even
}

// retry redrives all dead letters of a group.
func (w *world) retry(g sluice.Group) {
	_, _ = w.storeOf(g).Redrive(context.Background(), g, sluice.DeadLetterFilter{Status: []sluice.DeadLetterStatus{sluice.StatusDead}}, time.Time{})
}

// settled reports whether every event is done and no redrive is waiting.
func (w *world) settled() bool {
	w.mu.Lock()
	waiting := len(w.late) > 0 || !w.allSent()
	sent, partitions := w.sent, w.present()
	w.mu.Unlock()
	if waiting || len(w.unreplayed()) > 0 || w.has(resizes) && !w.knowsPartitions() {
		return false
	}
	ctx := context.Background()
	list, _ := w.store.Read(ctx, w.group)
	topic, _ := w.hub.Describe(ctx)
	list = slices.DeleteFunc(list, func(c sluice.Checkpoint) bool { _, ok := sent[c.Partition]; return !ok })
	for _, p := range list {
		b, _ := w.hub.Bounds(ctx, p.Partition)
		nothing := w.lenient && b.First > b.Last.Sequence // then it reports no loss before the next event
		if p.Incarnation != topic.Incarnation || p.Position.Sequence != sent[p.Partition]-1 && !nothing {
			return false
		}
	}
	return len(list) == partitions && !w.redriving(w.group) && w.chainSettled()
}

// deadLetters returns how many dead letters the first group has.
func (w *world) deadLetters() int {
	list, _ := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	return len(list)
}

// redriving reports whether a group has dead letters that wait for a redrive.
func (w *world) redriving(g sluice.Group) bool {
	list, _ := w.storeOf(g).List(context.Background(), g, sluice.DeadLetterFilter{})
	return slices.ContainsFunc(w.onPresent(slices.Clone(list)), func(d sluice.DeadLetter) bool { return w.waits(&d, list) })
}

func newWorld(cfg Config) *world {
	if cfg.Chain != nil {
		cfg.Themes &^= notInChains
	}
	w := &world{
		cfg: cfg, group: sluice.Group{Namespace: "sim", Topic: "events", Name: "$Default"}, start: time.Now(),
		leaseOf: map[tenure]*process{}, leaseEnds: map[tenure]time.Time{}, store: &sluicetest.Store{Unsafe: cfg.Unsafe},
		rng: rand.New(rand.NewPCG(cfg.Seed, 1)), coins: map[string]uint64{}, owners: map[string]*process{}, claimed: map[string]int64{}, claims: map[string]claim{},
		outages: map[string]time.Time{}, fired: map[string]int{}, written: map[written]int{}, sent: map[string]int64{},
		lives: map[string]int{}, overtaken: map[eventID]bool{}, lost: map[eventID]bool{}, repeats: newRepeats(), halts: map[string]time.Time{}, setBack: map[string]bool{}, tenancies: map[string]tenancy{}, claimedAt: map[tenure]time.Time{}, parkings: map[eventID]parking{}, discarded: map[int64]bool{}, blame: newBlame(), lanes: map[string]*lane{}, delivery: map[string]bool{}, touched: map[eventID]bool{}, windows: map[string]int{}, contests: map[string]*contest{},
		trace: trace{keep: cfg.Keep},
	}
	w.hub, w.copyHub = sluicetest.NewHub(w.group, cfg.Partitions), sluicetest.NewHub(w.group, cfg.Partitions)
	w.link()
	if w.has(gaps) {
		w.hub.Sparse()
		w.copyHub.Sparse()
	}
	w.store.Faults, w.leases = w, w.emptyLeases()
	w.calm, w.becomeCalm = context.WithCancel(context.Background())
	w.nextSend, w.nextFault, w.nextWatch = w.start, w.start.Add(5*time.Second), w.start.Add(watchEvery)
	if w.has(newLeases) {
		w.ageCheckpoints()
	}
	w.nextThemed = w.start.Add(8 * time.Second)
	w.adding, w.growth = cfg.Added, w.start.Add(cfg.Length/10)
	for n := range cfg.Processes {
		w.slots = append(w.slots, &slot{n: n})
	}
	if w.has(beginnings) {
		w.lenient = w.rng.IntN(2) == 0
		w.hub.Lenient(w.lenient)
		w.copyHub.Lenient(w.lenient)
	}
	w.settings, w.gone = w.firstSettings(), newRemovals(cfg.Partitions-cfg.Added)
	if w.has(fixedNumbers) && cfg.Want == sluice.Balanced {
		w.fixNumber()
	}
	if w.has(replays) {
		w.addReplayers()
	}
	return w
}

// Draw configures a world from a seed.
func Draw(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0))
	c := Config{
		Seed: seed, Partitions: 2 + r.IntN(7), Processes: 2 + r.IntN(2), MaxBatch: 1 + r.IntN(12), Events: 20 + r.IntN(60),
		FaultRate: []float64{0.01, 0.06, 0.25}[r.IntN(3)], FaultEvery: time.Duration(4+r.IntN(12)) * time.Second,
		Length: time.Duration(60+r.IntN(240)) * time.Second, WholeBatch: r.IntN(2) == 0, Poison: r.IntN(3) == 0,
	}
	// In half of the databases, a late commit may take effect after a claim.
	c.Unsafe.LateCommit = r.IntN(2) == 0
	c.Want = []sluice.Partitions{
		sluice.AllPartitions, sluice.Balanced, sluice.Partitions((c.Partitions + c.Processes - 1) / c.Processes),
	}[r.IntN(3)]
	if r.IntN(3) == 0 {
		c.BodyLimit = -1 // redrives read the log
	}
	c.Themes = drawThemes(seed, drawn)
	if c.Themes&environments != 0 {
		c.Events += 2 * mostConvicted // so that many are left to fail
	}
	if c.Partitions > 4 {
		c.Added = 1 + r.IntN(2)
	}
	return c
}
