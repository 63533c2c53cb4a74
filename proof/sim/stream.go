package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// streaming configures worlds with at-least-once delivery.
type streaming struct {
	Order   sluice.Ordering
	Policy  sluice.KeyPolicy
	Events  int       // at most in flight
	Bytes   int64     // of bodies and properties, at most in flight; 0: the default
	Rate    int       // records a second and process; 0: no limit
	Highest bool      // a mutant: the checkpoint moves to the highest event that is done
	Batches *batching // nil: records are streamed; else only this applies
}

// keys is how many partition keys the events of a partition have.
const keys = 5

// written is an event whose record is written.
type written struct {
	partition string
	sequence  int64
	life      int
}

// atLeastOnce is the delivery of a process that writes events at least once.
func (p *process) atLeastOnce() sluice.Delivery {
	s := p.stream
	return sluice.AtLeastOnce[*sluice.Event](atLeastOnceStore{checkpoints{store{p}}, deadLetters{p}}, p.records, sink{p}, &sluice.AtLeastOnceConfig{
		Order: s.Order, OnDeadLetter: s.Policy, MaxEvents: s.Events, MaxBytes: s.Bytes, CheckpointEvery: 777 * time.Millisecond, RetryAfter: 300 * time.Millisecond, Rate: s.rate(),
	})
}

// rate returns the rate of one process, nil without a limit.
func (s *streaming) rate() *sluice.Rate {
	if s.Rate == 0 {
		return nil
	}
	r, err := sluice.NewRate(s.Rate)
	if err != nil {
		panic(err)
	}
	return r
}

// notesParked notes who has stored dead letters, with a request of a time.
func (w *world) notesParked(p *process, list []sluice.DeadLetter, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		id := w.letterID(&list[i])
		w.parkings[id] = parking{p, asked, time.Now(), w.parkings[id].discarded}
		if p.stream != nil {
			w.touched[id] = true
			w.repeats.parked[id]++
		}
	}
}

// records returns the event as its record, or fails as its body demands.
func (p *process) records(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
	p.w.isEvent(e)
	p.w.touch(p.w.idOf(e))
	if p.w.has(hangingHandlers) {
		if err := p.dawdle(ctx, e.Partition, "make "+place(e)); err != nil {
			return nil, err
		}
	}
	if p.w.isDown(api) && p.w.coin(0.5, "make in an outage "+place(e)) {
		return nil, p.usable(e)
	}
	switch kind := kindOf(e); {
	case kind == "exit" && p.w.coin(0.4, "make "+place(e)):
		p.leaveGoroutine()
	case kind == "panic" && p.w.coin(0.5, "make "+place(e)):
		panic("panicked")
	case kind == "none":
		p.w.write(e) // without a record, the event counts as written
		p.redriven(e)
		return nil, nil
	case kind == "two":
		second := *e
		second.MessageID = "second"
		return []*sluice.Event{e, &second}, nil
	}
	return []*sluice.Event{e}, nil
}

// kindOf is the first word of an event's body, which says how it fails.
func kindOf(e *sluice.Event) string {
	kind, _, _ := strings.Cut(string(e.Body), " ")
	return kind
}

func place(e *sluice.Event) string { return fmt.Sprintf("%s/%d", e.Partition, e.Sequence) }

// recordName names a record of an event. What two records do at one moment has no fixed order,
// so each needs coins and requests of its own.
func recordName(e *sluice.Event) string {
	if e.MessageID == "" {
		return place(e)
	}
	return place(e) + "/" + e.MessageID
}

// sink is the target store, with the requests of a process.
type sink struct{ *process }

func (s sink) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	s.worksUnder(s.topic(), e.Partition, driver.FencingTokenOf(ctx).Lease.Epoch)
	finished, completed := s.submitted(ctx, e), s.inOrder(ctx, e)
	redrive := s.redriving(ctx, e)
	if !redrive {
		s.mayWrite(e, recordName(e))
	}
	s.w.live.Go(func() {
		s.takeTurn(ctx, e.Partition, 1)
		err := s.put(ctx, e)
		if err == nil {
			s.redriven(e)
		}
		s.hadTurn(redrive, e)
		if err == nil && !redrive {
			s.wasWritten(e, recordName(e))
		}
		finished()
		completed()
		done(driver.WriteResult{Err: err, Cost: 1})
		if s.w.has(doubleAnswers) && s.w.coin(0.02, "twice "+recordName(e)) {
			s.w.count("sink that answers twice")
			done(driver.WriteResult{Err: err, Cost: 1})
		}
	})
}

// put writes one record.
func (s sink) put(ctx context.Context, e *sluice.Event) error {
	if s.w.has(hangingSinks) {
		if err := s.dawdle(ctx, e.Partition, "write "+recordName(e)); err != nil {
			return err
		}
	}
	if err := s.usable(e); err != nil {
		return err
	}
	key := "write " + recordName(e)
	err := s.w.send(ctx, s.process, "write", recordName(e), func() error {
		if s.w.isDown(environment) { // since the request was sent: no success shows that others are guilty
			return errEnvironment
		}
		return s.w.writeRecord(e)
	})
	switch {
	case errors.Is(err, errLost) || errors.Is(err, errNoAnswer):
		if s.w.coin(0.2, "blame "+key) {
			return driver.Outage(err)
		}
		return driver.RetryAfter(err, time.Duration(10+len(key))*time.Millisecond)
	case err != nil:
		return err
	}
	return nil
}

// writeRecord writes a record to the target store, which may reject it.
func (w *world) writeRecord(e *sluice.Event) error {
	switch kind := kindOf(e); {
	case kind == "reject" && w.coin(0.7, "taste "+recordName(e)):
		return driver.Reject(errors.New("rejected by the target"))
	case kind == "broken" && w.coin(0.9, "broken "+recordName(e)):
		return errors.New("broken")
	case kind == "flaky" && w.coin(0.4, "flaky "+recordName(e)):
		return errors.New("flaky")
	}
	w.write(e)
	return nil
}

func (w *world) write(e *sluice.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[written{e.Partition, e.Sequence, lifeOf(e)}]++
	l := w.laneOf(w.group.Topic, e.Partition)
	l.moved, l.accused = time.Now(), false
}

// send makes a request that changes something, with the fate that the world
// decides.
func (w *world) send(ctx context.Context, p *process, op, place string, apply func() error) error {
	key := p.name + " " + op + " " + place
	switch w.edge(ctx, p, op, place, apply) {
	case lost:
		return errLost
	case unanswered:
		_ = apply()
		return errNoAnswer
	case delayed:
		w.postpone(key, apply)
		return errNoAnswer
	case fatal:
		if w.coin(0.5, "fatal "+key) {
			_ = apply()
		}
		w.kill(p)
		return errNoAnswer
	case abandoned:
		if w.coin(0.5, "abandoned "+key) {
			w.postpone(key, apply)
		}
		return errNoAnswer
	}
	return apply()
}

// checkpoints are those of the database, with the requests of a process.
type checkpoints struct{ store }

type atLeastOnceStore struct {
	checkpoints
	deadLetters
}

func (c checkpoints) Advance(ctx context.Context, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange) error {
	if n := len(done); n > 0 && c.w.cfg.Stream.Highest {
		to, done = sluice.Position{Sequence: done[n-1].Last}, nil
	}
	first := c.mayMoveStart(lease.Partition)
	return c.w.send(ctx, c.process, "advance", lease.Partition, func() error { return c.w.advance(c.process, lease, incarnation, to, done, first) })
}

// advance moves a checkpoint, and records violations: a checkpoint that passes an
// event that is neither written nor a dead letter, that moves backwards, or that
// comes from an owner that has been fenced.
func (w *world) advance(p *process, lease sluice.Lease, incarnation string, to sluice.Position, done []driver.SequenceRange, first bool) error {
	ctx := context.Background()
	checkpoint := w.checkpoint(lease.Partition)
	before := checkpoint.Position
	parked, _ := w.store.List(ctx, w.group, sluice.DeadLetterFilter{Partition: lease.Partition})
	if err := w.store.Advance(ctx, lease, incarnation, to, done); err != nil {
		return err
	}
	w.movedAlone(lease, before, to)
	if !first {
		w.passes(p, lease, before, to)
	}
	settled := map[int64]bool{}
	for _, d := range parked {
		settled[d.Event.Sequence] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	complain := func(format string, args ...any) {
		w.stale = append(w.stale, "partition "+lease.Partition+": "+fmt.Sprintf(format, args...))
	}
	if to.Sequence < before.Sequence {
		complain("the checkpoint went back from %v to %v", before, to)
	}
	if claimed := w.claimed[partitionName(lease)]; lease.Epoch < claimed {
		complain("the checkpoint was moved under epoch %d after epoch %d had claimed", lease.Epoch, claimed)
	}
	for _, r := range append([]driver.SequenceRange{{First: before.Sequence + 1, Last: to.Sequence}}, done...) {
		for n := max(r.First, 0); n <= r.Last; n++ {
			life := w.lives[checkpoint.Incarnation]
			if w.isEmpty(eventID{w.group.Topic, lease.Partition, n, life}) {
				continue
			}
			if !settled[n] && w.written[written{lease.Partition, n, life}] == 0 && !w.lost[eventID{w.group.Topic, lease.Partition, n, life}] {
				complain("event %d counts as done at checkpoint %v, but is neither written nor a dead letter", n, to)
				return nil
			}
		}
	}
	return nil
}

// checkpoint returns the checkpoint of a partition of the first stage.
func (w *world) checkpoint(partition string) sluice.Checkpoint {
	for _, p := range w.readCheckpoints() {
		if p.Partition == partition {
			return p
		}
	}
	return sluice.Checkpoint{Position: driver.Unset}
}

// deadLetters is the dead-letter queue, with the requests of a process.
type deadLetters struct{ *process }

func (l deadLetters) Park(ctx context.Context, list []sluice.DeadLetter) error {
	asked, latest := time.Now(), l.w.latestClaim(&list[0])
	assignment := l.w.assignment(sluice.Lease{Group: list[0].Group, Partition: list[0].Event.Partition})
	return l.w.send(ctx, l.process, "park", list[0].Event.Partition, func() error {
		l.w.excuse(l.process, latest, list)
		err := l.w.store.Park(context.Background(), list)
		if err == nil {
			l.w.stored(l.name, assignment, list)
			l.w.notesParked(l.process, list, asked)
			l.w.progressed(list[0].Group.Topic, list[0].Event.Partition)
		}
		return err
	})
}

func (l deadLetters) Settle(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
	return l.w.send(ctx, l.process, "settle", fmt.Sprint(applied, len(returned)), func() error {
		return l.w.store.Settle(context.Background(), group, applied, returned)
	})
}

func (l deadLetters) Due(ctx context.Context, group sluice.Group, partition string, limit int) ([]sluice.DeadLetter, error) {
	due, err := store(l).Due(ctx, group, partition, limit)
	l.foundDue(partition, due)
	return due, err
}

func (l deadLetters) DuePartitions(ctx context.Context, group sluice.Group, partitions []string) ([]string, error) {
	return store(l).DuePartitions(ctx, group, partitions)
}

func (l deadLetters) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	return request(ctx, l.process, "parked", partition, func() ([]driver.ParkedEvent, error) {
		return l.w.store.Parked(ctx, group, partition, incarnation, after)
	})
}

func (l deadLetters) SetAside(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	return l.w.send(ctx, l.process, "set aside", partition, func() error {
		return l.w.storeOf(group).SetAside(context.Background(), group, partition, incarnation, lost)
	})
}

func (l deadLetters) Held(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	return request(ctx, l.process, "held", partition, func() ([]driver.HeldKey, error) { return l.w.store.Held(ctx, group, partition, except) })
}

// checkStream returns the violations in the target store: every event must be
// there or be a dead letter.
func (w *world) checkStream() []string {
	var bad []string
	list, err := w.store.List(context.Background(), w.group, sluice.DeadLetterFilter{})
	if err != nil {
		bad = append(bad, fmt.Sprintf("list dead letters: %v", err))
	}
	handled := map[written]bool{} // a dead letter
	effects := w.countEffects()
	for i := range list {
		d := &list[i]
		w.mu.Lock()
		present := w.letterID(d).life == w.life && !w.isGone(d.Event.Partition)
		w.mu.Unlock()
		if !present {
			continue
		}
		handled[written{d.Event.Partition, d.Event.Sequence, w.life}] = true
		if w.waits(d, list) {
			bad = append(bad, fmt.Sprintf("partition %s: event %d still waits for its redrive", d.Event.Partition, d.Event.Sequence))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for partition, sent := range w.sent {
		for n := range sent {
			if w.isEmpty(eventID{w.group.Topic, partition, n, w.life}) {
				continue
			}
			id := eventID{w.group.Topic, partition, n, w.life}
			before := w.repeats.earlier[id]
			if e := (written{partition, n, w.life}); w.written[e] <= before.written && effects[id] <= before.effects && !handled[e] && !w.lost[id] {
				bad = append(bad, fmt.Sprintf("partition %s: event %d is neither written nor a dead letter (%d times written before the checkpoint was set back)", partition, n, before.written))
			}
		}
	}
	return bad
}

// DrawStream configures a world with at-least-once delivery from a seed.
func DrawStream(seed uint64) Config {
	c := Draw(seed)
	r := rand.New(rand.NewPCG(seed, 2))
	c.Poison, c.Unsafe.LateCommit = false, false
	c.Themes = drawThemes(seed, drawnStream)
	c.Stream = &streaming{
		Order: sluice.Ordering(r.IntN(3)), Policy: sluice.KeyPolicy(r.IntN(2)),
		Events: []int{8, 40, 1000}[r.IntN(3)] * c.Partitions,
	}
	if r.IntN(4) == 0 {
		c.Stream.Bytes = int64(1000 * c.Partitions)
	}
	if r.IntN(4) == 0 {
		c.Stream.Rate = 10 + r.IntN(40)
	}
	return c
}
