package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

var (
	errLost     = errors.New("connection lost")
	errNoAnswer = errors.New("no answer")
)

// slot is a place for one process, which is started again after it ends.
type slot struct {
	n, generation int
	role          role
	fixed         bool // it takes another number of partitions than the others, at most
	most          sluice.Partitions
	process       *process
	restart       time.Time // while there is no process
}

// role is what a process does.
type role uint8

const (
	ofFirstStage role = iota
	ofSecondStage
	replaying // the log of the first stage
)

// process is one process of a consumer. Its requests to the world go through it,
// and it is the [driver.Clock] of its consumer.
type process struct {
	w           *world
	name        string
	owner       string // its name, except for a twin
	slot        *slot  // nil for a command that redrives
	secondStage bool   // of the second stage

	cancel   context.CancelFunc
	consumer *sluice.Consumer
	ended    chan struct{}

	// guarded by world.mu
	dead        bool
	pausedUntil time.Time
	reported    time.Time // the last observation with an error that is about no partition
	skew        time.Duration
	monotonic   suspension
	wall        suspension
	cutOff      time.Time        // until when it does not reach the lease store
	cutOffNext  time.Duration    // the same, from its next renewal on
	short       int              // the log describes so many partitions to it
	shortUntil  time.Time        // until when
	misled      bool             // all its clocks stood still in a pause
	submissions []time.Duration  // of records, while there is a rate
	loads       map[string]*load // by partition
	queues      map[turn]*queue
	redrives    map[string]*redrives       // by partition
	settings                               // of the deployment that started it
	wants       sluice.Partitions          // how many it takes
	replays     bool                       // it keeps the log in memory
	stopping    bool                       // it was stopped
	memories    map[string]*memory         // of a process that replays, by partition
	ends        map[string]eventID         // the newest event when it acquired each partition
	chosen      map[string]bool            // partitions of an assignment: whether it has chosen the start and read nothing since
	reports     map[string]time.Time       // the last observation with an error, by partition
	knows       map[string]known           // by partition
	leaving     map[tenure]bool            // leases whose checkpoints it has left
	committing  map[string]context.Context // by partition
	overloaded  map[string]bool            // by partition: its transaction runs into a time limit
}

// spawn starts a process in a slot.
func (w *world) spawn(s *slot) {
	w.mu.Lock()
	s.generation++
	name := fmt.Sprintf("c%d.%d", s.n, s.generation)
	w.mu.Unlock()
	p := w.launch(name, name, s, s.role, func(ctx context.Context, c *sluice.Consumer) { _ = c.Run(ctx) })
	w.mu.Lock()
	defer w.mu.Unlock()
	p.slot, s.process = s, p
}

// command starts a process that redrives the dead letters of partitions without
// an owner, and ends.
func (w *world) command() {
	w.mu.Lock()
	w.commands++
	name := fmt.Sprintf("r%d", w.commands)
	of := ofFirstStage
	if w.cfg.Chain != nil && w.commands%2 == 0 {
		of = ofSecondStage
	}
	w.mu.Unlock()
	w.launch(name, name, nil, of, func(ctx context.Context, c *sluice.Consumer) { _, _, _ = c.Redrive(ctx) })
}

// retryLater is the Config.RetryLater of all processes: in every other world dead letters wait for
// an operator alone.
func (w *world) retryLater() []time.Duration {
	if w.cfg.Seed%2 == 0 {
		return []time.Duration{}
	}
	return []time.Duration{3 * time.Second, 20 * time.Second}
}

// launch starts a process.
func (w *world) launch(name, owner string, slot *slot, of role, run func(context.Context, *sluice.Consumer)) *process {
	p := &process{w: w, settings: w.settingsOf(of), name: name, owner: owner, secondStage: of == ofSecondStage, replays: of == replaying, ended: make(chan struct{}), committing: map[string]context.Context{}, overloaded: map[string]bool{}, loads: map[string]*load{}, queues: map[turn]*queue{}, redrives: map[string]*redrives{}, memories: map[string]*memory{}, ends: map[string]eventID{}, reports: map[string]time.Time{}, chosen: map[string]bool{}, leaving: map[tenure]bool{}, knows: map[string]known{}}
	h := fnv.New64a()
	fmt.Fprint(h, w.cfg.Seed, name)
	delivery, want := sluice.Transactional(store{p}, p.handler()), w.want(slot)
	switch {
	case of == replaying:
		delivery, want = p.replay(), sluice.AllPartitions
	case of == ofSecondStage:
	case w.cfg.Chain != nil:
		delivery = p.firstStage()
	case p.stream != nil && p.stream.Batches != nil:
		delivery = p.batches()
	case p.stream != nil:
		delivery = p.atLeastOnce()
	}
	p.wants = want
	consumer, err := sluice.New(source{p}, leases{p}, delivery, &sluice.Config{
		Partitions: want,
		Owner:      p.owner, Clock: p, Seed: h.Sum64() | 1,
		MaxBatch: p.maxBatch, BodyLimit: w.cfg.BodyLimit, RetryMin: 50 * time.Millisecond, RetryMax: 5 * time.Second, RetryLater: w.retryLater(),
		RedriveEvery: 5 * time.Second, Logger: slog.New(slog.DiscardHandler), Observer: p, StampsFrom: []stamp.Source{{Topic: w.group.Topic}},
	})
	if err != nil {
		panic(err)
	}
	p.consumer = consumer
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.mu.Lock()
	w.owners[p.name] = p
	w.note("start %s", p.name)
	w.mu.Unlock()
	w.live.Go(func() {
		defer close(p.ended)
		run(ctx, consumer)
	})
	return p
}

// kill ends a process as kill -9 does: what it has sent may arrive, later requests
// do not.
func (w *world) kill(p *process) {
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return
	}
	p.dead = true
	if p.slot != nil && p.slot.process == p {
		p.slot.process, p.slot.restart = nil, time.Now().Add(time.Duration(100+w.rng.IntN(6000))*time.Millisecond)
	}
	w.note("kill %s", p.name)
	w.trouble(p, "", time.Now())
	var arrived []*ticket
	var freed []*ticket
	for _, t := range w.parked {
		if t.process != p {
			continue
		}
		if t.apply != nil && t.drawn && t.fate != lost {
			arrived = append(arrived, t)
			w.fired["fatal "+t.op]++
		}
		if t.op != "sleep" {
			freed = append(freed, t)
		}
	}
	for _, t := range freed {
		w.unpark(t)
		t.fate = abandoned
	}
	// Tickets of the same moment have no fixed order.
	slices.SortStableFunc(arrived, func(a, b *ticket) int { return cmp.Compare(a.key, b.key) })
	var apply []*ticket
	for _, t := range arrived {
		if w.rng.IntN(2) == 0 {
			apply = append(apply, t)
		}
	}
	w.mu.Unlock()
	for _, t := range apply {
		_ = t.apply()
	}
	for _, t := range freed {
		close(t.release)
	}
	p.cancel()
}

// Wall implements [driver.Clock].
func (p *process) Wall() time.Time {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	now := time.Now()
	return now.Add(p.skew - p.wall.lost(now))
}

// Elapsed implements [driver.Clock].
func (p *process) Elapsed() time.Duration {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	now := time.Now()
	return now.Sub(p.w.start) - p.monotonic.lost(now)
}

// pause stops a process for a time. The clocks in still stop with it. The lock is
// held.
func (p *process) pause(span time.Duration, still ...*suspension) {
	now := time.Now()
	p.pausedUntil = now.Add(span)
	p.w.trouble(p, "", p.pausedUntil)
	for _, s := range []*suspension{&p.monotonic, &p.wall} {
		s.begin(now, 0)
	}
	for _, s := range still {
		s.begin(now, span)
	}
}

// suspension is how much a clock is behind because its machine was suspended.
type suspension struct {
	earlier    time.Duration // earlier
	start, end time.Time
}

func (s *suspension) begin(now time.Time, span time.Duration) {
	s.earlier, s.start, s.end = s.lost(now), now, now.Add(span)
}

func (s *suspension) lost(now time.Time) time.Duration {
	if now.After(s.end) {
		now = s.end
	}
	return s.earlier + now.Sub(s.start)
}

// Sleep implements [driver.Clock].
func (p *process) Sleep(ctx context.Context, d time.Duration) error { return p.w.sleep(ctx, p, d) }

// Before implements [sluicetest.Faults]: a handler's write may fail in an outage.
func (w *world) Before(op sluicetest.Op, lease sluice.Lease) error {
	if op != sluicetest.OpInsert {
		return nil
	}
	if w.runsOut(lease) {
		w.count("transaction that ran out of time")
		return errTimeLimit
	}
	if w.troubled() && w.coin(w.cfg.FaultRate/20, "insert "+lease.Owner+" "+lease.Partition) {
		w.count("lost insert")
		return errLost
	}
	return nil
}

// Commit implements [sluicetest.Faults].
func (w *world) Commit(step driver.Step, apply func() error) error {
	w.mu.Lock()
	p := w.holderOf(step.Lease)
	ctx := cmp.Or(p.committing[step.Lease.Partition], context.Background())
	w.mu.Unlock()
	apply = w.checkedCommit(p, step, apply)
	ctx, cancel := bounded(ctx)
	defer cancel()
	switch w.edge(ctx, p, "commit", step.Lease.Partition, apply) {
	case lost:
		return errLost
	case unanswered:
		_ = apply()
		return sluice.ErrUnknown
	case delayed:
		w.postpone(step.Lease.Owner+" commit "+step.Lease.Partition, apply)
		return sluice.ErrUnknown
	case fatal:
		if w.coin(0.5, "fatal "+step.Lease.Owner+" "+step.Lease.Partition) {
			_ = apply()
		}
		w.kill(p)
		return sluice.ErrUnknown
	case abandoned:
		// A request that the process has given up may still arrive.
		w.count("gave up a commit under way")
		if w.coin(0.5, "abandoned "+step.Lease.Owner+" "+step.Lease.Partition) {
			w.postpone(step.Lease.Owner+" commit "+step.Lease.Partition, apply)
		}
		return sluice.ErrUnknown
	}
	return apply()
}

// partitionName identifies a partition of a stage.
func partitionName(l sluice.Lease) string {
	if l.Group.Name == replayGroup {
		return replayGroup + "/" + l.Partition
	}
	return l.Group.Topic + "/" + l.Partition
}

// checkedCommit returns a commit that is recorded as a violation if it takes effect
// after a later owner has claimed the partition.
func (w *world) checkedCommit(p *process, step driver.Step, apply func() error) func() error {
	first, assignment := p.mayMoveStart(step.Lease.Partition), w.assignment(step.Lease)
	return func() error {
		w.mu.Lock()
		claimed := w.claimed[partitionName(step.Lease)]
		w.mu.Unlock()
		redriven, asked := w.redrivesOf(step), time.Now()
		err := apply()
		if err == nil {
			w.movedAlone(step.Lease, step.From, step.To)
			w.checkStep(step, redriven)
			if !first {
				w.passes(p, step.Lease, step.From, step.To)
			}
			w.progressed(step.Lease.Group.Topic, step.Lease.Partition)
			w.stored(step.Lease.Owner, assignment, step.DeadLetters)
			w.notesParked(p, step.DeadLetters, asked)
		}
		if err == nil && step.Lease.Epoch < claimed {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.stale = append(w.stale, fmt.Sprintf("partition %s: a commit of epoch %d took effect after epoch %d had claimed", step.Lease.Partition, step.Lease.Epoch, claimed))
		}
		return err
	}
}

// postpone makes a change arrive later.
func (w *world) postpone(key string, apply func() error) {
	delay := time.Millisecond // half of them arrive before the claim that reads the checkpoint
	if w.coin(0.5, "slow "+key) {
		for i := range 6 { // up to 63 × 0.3 s
			if w.coin(0.5, "delay "+key) {
				delay += time.Duration(1<<i) * 300 * time.Millisecond
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, &delivery{due: time.Now().Add(delay), key: key, apply: apply})
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fired[what]++
}
