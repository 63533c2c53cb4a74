package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
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
// and it is the [sluice.Clock] of its consumer.
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
	leaving     map[sluice.Lease]bool      // leases whose checkpoints it has left
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

// launch starts a process.
func (w *world) launch(name, owner string, slot *slot, of role, run func(context.Context, *sluice.Consumer)) *process {
	p := &process{w: w, settings: w.settingsOf(of), name: name, owner: owner, secondStage: of == ofSecondStage, replays: of == replaying, ended: make(chan struct{}), committing: map[string]context.Context{}, overloaded: map[string]bool{}, loads: map[string]*load{}, queues: map[turn]*queue{}, redrives: map[string]*redrives{}, memories: map[string]*memory{}, ends: map[string]eventID{}, reports: map[string]time.Time{}, chosen: map[string]bool{}, leaving: map[sluice.Lease]bool{}}
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
		MaxBatch: p.maxBatch, BodyLimit: w.cfg.BodyLimit, RetryMin: 50 * time.Millisecond, RetryMax: 5 * time.Second,
		RedriveEvery: 5 * time.Second, Observer: p, StampsFrom: []sluice.StampSource{{Topic: w.group.Topic}},
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

// Wall implements [sluice.Clock].
func (p *process) Wall() time.Time {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	now := time.Now()
	return now.Add(p.skew - p.wall.lost(now))
}

// Elapsed implements [sluice.Clock].
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
	before      time.Duration // earlier
	from, until time.Time
}

func (s *suspension) begin(now time.Time, span time.Duration) {
	s.before, s.from, s.until = s.lost(now), now, now.Add(span)
}

func (s *suspension) lost(now time.Time) time.Duration {
	if now.After(s.until) {
		now = s.until
	}
	return s.before + now.Sub(s.from)
}

// Sleep implements [sluice.Clock].
func (p *process) Sleep(ctx context.Context, d time.Duration) error { return p.w.sleep(ctx, p, d) }

// request makes a request, with the fate that the world decides.
func request[T any](ctx context.Context, p *process, op, partition string, do func() (T, error)) (T, error) {
	var none T
	switch p.w.edge(ctx, p, op, partition, nil) {
	case answeredLate:
		v, err := do()
		if p.w.sleep(ctx, p, p.w.delay(op+" "+partition)) != nil {
			return none, errNoAnswer
		}
		return v, err
	case lost, delayed:
		return none, errLost
	case unanswered:
		if _, err := do(); err != nil {
			return none, err
		}
		return none, errNoAnswer
	case abandoned:
		if err := ctx.Err(); err != nil {
			return none, err
		}
		return none, errLost
	}
	return do()
}

func requestError(ctx context.Context, p *process, op, partition string, do func() error) error {
	_, err := request(ctx, p, op, partition, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// source is the log, with the requests of a process.
type source struct{ *process }

func (s source) Describe(ctx context.Context) (sluice.Topic, error) {
	return request(ctx, s.process, "describe", "", func() (sluice.Topic, error) {
		topic, err := s.hub().Describe(ctx)
		if err == nil && !s.secondStage {
			topic.Partitions = topic.Partitions[:s.described()]
		}
		if s.replays {
			topic.Name = replayGroup
		}
		return topic, err
	})
}

func (s source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	outOfDate := false
	b, err := request(ctx, s.process, "bounds", partition, func() (driver.Bounds, error) {
		if err := s.absent(partition); err != nil {
			return driver.Bounds{}, err
		}
		if outOfDate = s.outOfDate(partition); outOfDate {
			return driver.Bounds{Last: driver.Origin}, nil
		}
		return s.hub().Bounds(ctx, partition)
	})
	if err == nil {
		s.answered(partition, b, outOfDate)
	}
	return b, err
}

func (s source) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	at, err := request(ctx, s.process, "seek", partition, func() (sluice.Position, error) {
		if err := s.absent(partition); err != nil {
			return driver.Unset, err
		}
		at, err := s.hub().Seek(ctx, partition, start, epoch)
		s.beginningMoves(partition, "beginning that moves after a seek")
		return at, err
	})
	if err == nil {
		s.choseStart(partition)
	}
	return at, err
}

func (s source) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	return request(ctx, s.process, "open", partition, func() (driver.Reader, error) {
		if err := s.absent(partition); err != nil {
			return nil, err
		}
		if err := s.lie(partition, after); err != nil {
			return nil, err
		}
		r, err := s.hub().Open(ctx, partition, after, epoch)
		if err != nil {
			return nil, err
		}
		s.opened(partition, after.Sequence)
		s.beginningMoves(partition, "beginning that moves after an opening")
		return &reader{process: s.process, partition: partition, inner: r, last: after.Sequence}, nil
	})
}

func (s source) hub() *sluicetest.Hub {
	switch {
	case s.secondStage:
		return s.w.nextHub
	case s.replays:
		return s.w.copyHub
	}
	return s.w.hub
}

type reader struct {
	*process
	partition string
	inner     driver.Reader
	last      int64 // the newest event that it has returned
	silent    bool  // it returns nothing more
}

func (r *reader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	if r.fallsSilent() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	events, err := request(ctx, r.process, "fetch", r.partition, func() ([]*sluice.Event, error) {
		events, err := r.inner.Read(ctx, max)
		r.fetched(events)
		return events, err
	})
	if err == nil {
		r.last = events[len(events)-1].Sequence
		if slices.ContainsFunc(events, func(e *sluice.Event) bool { return !e.Control }) {
			r.hasRead(r.partition)
		}
	}
	return events, err
}

func (r *reader) Close(ctx context.Context) error { return r.inner.Close(ctx) }

// leaseStore is the current lease store. A fault replaces it by an empty one.
func (w *world) leaseStore() *sluicetest.Leases {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases
}

// leases is the lease store, with the requests of a process.
type leases struct{ *process }

func (l leases) Acquire(ctx context.Context, group sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	return request(ctx, l.process, "acquire", partition, func() (sluice.Lease, error) {
		lease, err := l.w.leaseStore().Acquire(ctx, group, partition, owner, ttl, above)
		if err == nil {
			l.w.acquired(l.process, lease)
			l.forget(partition)
			if l.replays {
				l.noteEnd(partition)
			}
			l.w.extended(lease, ttl)
		}
		return lease, err
	})
}

func (l leases) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	return requestError(ctx, l.process, "renew", lease.Partition, func() error {
		err := l.w.leaseStore().Renew(ctx, lease, ttl)
		if err == nil {
			l.w.extended(lease, ttl)
		}
		return err
	})
}

func (l leases) Release(ctx context.Context, lease sluice.Lease) error {
	l.releases(lease)
	return requestError(ctx, l.process, "release", lease.Partition, func() error { return l.w.leaseStore().Release(ctx, lease) })
}

func (l leases) List(ctx context.Context, group sluice.Group) ([]driver.LeaseInfo, error) {
	return request(ctx, l.process, "list", "", func() ([]driver.LeaseInfo, error) { return l.w.leaseStore().List(ctx, group) })
}

// store is the database, with the requests of a process.
type store struct{ *process }

func (s store) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	return request(ctx, s.process, "claim", lease.Partition, func() (sluice.Checkpoint, error) {
		p, err := s.w.storeOf(lease.Group).Claim(ctx, lease, incarnation)
		if err == nil {
			s.w.mu.Lock()
			defer s.w.mu.Unlock()
			s.past(lease.Partition, p.Position.Sequence)
			s.deliveredBy(lease)
			if _, ok := s.w.claimedAt[lease]; !ok {
				s.w.claimedAt[lease] = time.Now()
			}
			if lease.Epoch >= s.w.claimed[partitionName(lease)] {
				s.w.claimed[partitionName(lease)], s.w.claims[partitionName(lease)] = lease.Epoch, claim{s.process, lease}
			}
		}
		return p, err
	})
}

// Commit makes the request that begins the transaction. The request that commits
// it is made in world.Commit.
func (s store) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	s.w.mu.Lock()
	s.committing[step.Lease.Partition] = ctx
	s.w.leaseOf[step.Lease] = s.process // after a loss of the leases, two processes of one owner may have equal leases
	s.w.mu.Unlock()
	if s.w.cfg.Blind {
		return s.blind(ctx, step, fn)
	}
	return s.begin(ctx, step, fn)
}

// begin makes the request that begins a transaction, within the time that a driver has for
// it, and runs the rest of the transaction.
func (s store) begin(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	err := func() error {
		ctx, cancel := bounded(ctx)
		defer cancel()
		return requestError(ctx, s.process, "begin", step.Lease.Partition, func() error { return nil })
	}()
	if err != nil {
		return err
	}
	return s.w.storeOf(step.Lease.Group).Commit(ctx, step, fn)
}

// blind is a mutant: it takes a commit of unknown outcome for a failed one and
// repeats it without reading the checkpoint.
func (s store) blind(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	for {
		err := s.begin(ctx, step, fn)
		if !errors.Is(err, sluice.ErrUnknown) {
			return err
		}
	}
}

func (s store) RecordAttempt(ctx context.Context, lease sluice.Lease, at sluice.Position, trial driver.AttemptRecord) error {
	err := requestError(ctx, s.process, "record", lease.Partition, func() error {
		err := s.w.storeOf(lease.Group).RecordAttempt(ctx, lease, at, trial)
		if err == nil {
			s.w.attempted(lease, trial)
		}
		return err
	})
	if err != nil {
		s.w.notAttempted(lease)
	}
	return err
}

func (s store) Leave(ctx context.Context, lease sluice.Lease) error {
	s.w.mu.Lock()
	s.leaving[lease] = true
	s.w.mu.Unlock()
	return requestError(ctx, s.process, "leave", lease.Partition, func() error {
		err := s.w.storeOf(lease.Group).Leave(ctx, lease)
		if err == nil {
			s.w.left(lease)
		}
		return err
	})
}

func (s store) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	return request(ctx, s.process, "due", partition, func() ([]sluice.DeadLetter, error) { return s.w.storeOf(group).Due(ctx, group, partition, limit) })
}

func (s store) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	return deadLetters(s).Parked(ctx, group, partition, incarnation, after)
}

func (s store) SetAside(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	return deadLetters(s).SetAside(ctx, group, partition, incarnation, lost)
}

func (s store) ReadDedup(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
	return request(ctx, s.process, "seen", partition, func() ([]driver.DedupState, error) { return s.w.storeOf(group).ReadDedup(ctx, group, partition) })
}

func (s store) Read(ctx context.Context, group sluice.Group) ([]sluice.Checkpoint, error) {
	return request(ctx, s.process, "read", "", func() ([]sluice.Checkpoint, error) { return s.w.storeOf(group).Read(ctx, group) })
}

func (s store) Reset(ctx context.Context, group sluice.Group, partition, incarnation string, to sluice.Position) (int64, error) {
	return request(ctx, s.process, "reset", partition, func() (int64, error) { return s.w.storeOf(group).Reset(ctx, group, partition, incarnation, to) })
}

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
