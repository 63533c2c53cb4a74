package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// chaining configures worlds of two stages: the first delivers at least once, into
// the log of the second, which is transactional.
type chaining struct {
	Partitions int  // of the log between them
	Apart      bool // each stage has a database of its own, which fails over alone

	// Mutants.
	Unreported bool // a bound of the second stage's deduplication is passed without a report
	Unstamped  bool // the second stage sees no stamps
	Unnamed    bool // it sees watermarks and epochs, but no two equal ids
	Early      bool // the watermark is the highest event sent, instead of the checkpoint stored
	Silent     bool // the stamp does not name the dead letters before the event
}

// link makes the log between the two stages, and the slots of the second.
func (w *world) link() {
	if w.cfg.Chain == nil {
		return
	}
	w.nextStore = w.store
	if w.cfg.Chain.Apart {
		w.nextStore = &sluicetest.Store{Unsafe: w.cfg.Unsafe, Faults: w}
	}
	w.nextHub = sluicetest.NewHub(w.groupOf(ofSecondStage), w.cfg.Chain.Partitions)
	if w.has(gaps) {
		w.nextHub.Sparse()
		for n := range w.cfg.Chain.Partitions {
			w.nextHub.Append(fmt.Sprint(n), w.empties(eventID{"onward", fmt.Sprint(n), 0, 0})...)
		}
	}
	w.forwarded = forwarded{made: map[string]int{}, event: map[string]eventID{}, times: map[string]int{}, sendings: map[written]sending{}, setBacks: map[string][]setBack{}, excused: map[string]bool{}, full: map[string]bool{}}
	for n := range w.cfg.Processes {
		w.slots = append(w.slots, &slot{n: w.cfg.Processes + n, role: ofSecondStage})
	}
}

// groups are the consumer groups of all stages.
func (w *world) groups() []sluice.Group {
	if w.cfg.Chain == nil {
		return []sluice.Group{w.group}
	}
	return []sluice.Group{w.group, w.groupOf(ofSecondStage)}
}

// storeOf is the database of a stage.
func (w *world) storeOf(g sluice.Group) *sluicetest.Store {
	if w.cfg.Chain != nil && g.Topic != w.group.Topic {
		return w.nextStore
	}
	return w.store
}

// firstStage is the delivery into the log of the second stage.
func (p *process) firstStage() sluice.Delivery {
	s := p.w.cfg.Stream
	return sluice.AtLeastOnce[*sluice.Event](atLeastOnceStore{checkpoints{store{p}}, deadLetters{p}}, p.messages, &nextStageSink{process: p, sent: map[string]int64{}}, &sluice.AtLeastOnceConfig{
		Order: s.Order, OnDeadLetter: s.Policy, MaxEvents: s.Events, CheckpointEvery: 777 * time.Millisecond, RetryAfter: 300 * time.Millisecond,
	})
}

// messages makes an event's messages, the same ones each time. One kind of event is
// refused until it is redriven. A MessageID is the event's place and the message's
// number.
func (p *process) messages(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
	p.w.isEvent(e)
	n := 1
	switch kind, _, _ := strings.Cut(string(e.Body), " "); kind {
	case "none":
		p.w.write(e)
		return nil, nil
	case "two", "half":
		n = 2
	case "refused":
		if stamp, _ := stamp.Of(ctx, e, 0); !stamp.Redrive {
			return nil, errors.New("refused")
		}
	}
	p.w.mu.Lock()
	p.w.forwarded.made[place(e)] = n
	p.w.forwarded.event[place(e)] = p.w.idOf(e)
	p.w.mu.Unlock()
	list := make([]*sluice.Event, n)
	for i := range list {
		stamp, _ := stamp.Of(ctx, e, i)
		m := &sluice.Event{Partition: e.Partition, Sequence: e.Sequence, Key: e.Key, Body: e.Body, MessageID: fmt.Sprintf("%s.%d", place(e), i), Properties: map[string]any{}}
		stamp.SetTo(m.Properties)
		list[i] = m
	}
	return list, nil
}

// nextStageSink is a sink that appends to the second stage's log, with the requests
// of a process.
type nextStageSink struct {
	*process
	sent map[string]int64 // the highest event submitted, by partition; guarded by world.mu
}

func (f *nextStageSink) Submit(ctx context.Context, m *sluice.Event, done func(driver.WriteResult)) {
	if f.w.cfg.Chain.Early {
		f.w.mu.Lock()
		f.sent[m.Partition] = max(f.sent[m.Partition], m.Sequence)
		low := f.sent[m.Partition]
		f.w.mu.Unlock()
		stamp, _, _ := stamp.From(m.Properties)
		stamp.Low = low
		stamp.SetTo(m.Properties)
	}
	f.w.live.Go(func() { done(driver.WriteResult{Err: f.put(ctx, m), Cost: 1}) })
}

// put appends one message, to a partition chosen by its event and number. Of some
// events the second message is refused until the event is redriven.
func (f *nextStageSink) put(ctx context.Context, m *sluice.Event) error {
	stamp, _, _ := stamp.From(m.Properties)
	refused := kindOf(m) == "half" && stamp.ID.N == 1 && !stamp.Redrive
	to := fmt.Sprint((int(m.Sequence%5) + len(m.MessageID)) % f.w.cfg.Chain.Partitions)
	err := f.w.send(ctx, f.process, "append", m.MessageID, func() error {
		if refused {
			return driver.Reject(errors.New("too large"))
		}
		f.w.append(to, m)
		return nil
	})
	switch {
	case !errors.Is(err, errLost) && !errors.Is(err, errNoAnswer):
		return err
	case f.w.coin(0.2, "blame append "+m.MessageID):
		return driver.Outage(err)
	}
	return driver.RetryAfter(err, time.Duration(10+len(m.MessageID))*time.Millisecond)
}

// forwarded records what the first stage has sent to the second.
type forwarded struct {
	made     map[string]int      // of an event, by its place: how many messages
	event    map[string]eventID  // by its place
	times    map[string]int      // of a message: how often it was appended
	sendings map[written]sending // of an event between the stages: which message it is
	// setBacks are the failovers that have set the checkpoint of a partition of the first stage
	// back.
	setBacks map[string][]setBack
	// excused are events that an owner has parked after another owner had taken over
	// and may have sent them. No fence prevents that, so a redrive may send them again.
	excused map[string]bool
	// full are the partitions of the log in which the second stage has reported a bound of its
	// deduplication: duplicates in them may take effect.
	full map[string]bool
}

// setBack says that a failover has set a checkpoint of the first stage back.
type setBack struct{ from, to int64 }

// excuse records the dead letters of a partition that a process stores after another owner has
// taken over. When it sent them, a claim was the latest.
func (w *world) excuse(p *process, latest claim, list []sluice.DeadLetter) {
	if w.cfg.Chain == nil {
		return
	}
	now := w.latestClaim(&list[0])
	if now == latest && now.process == p {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		w.forwarded.excused[place(&list[i].Event)] = true
	}
}

// claim is who has claimed a checkpoint.
type claim struct {
	process *process
	lease   sluice.Lease
}

// latestClaim returns the latest claim of a dead letter's partition.
func (w *world) latestClaim(l *sluice.DeadLetter) claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims[partitionName(sluice.Lease{Group: l.Group, Partition: l.Event.Partition})]
}

// append appends a message to the log of the second stage.
func (w *world) append(partition string, m *sluice.Event) {
	w.write(m)
	w.mu.Lock()
	w.forwarded.times[m.MessageID]++
	times := w.forwarded.times[m.MessageID]
	setBacks := slices.Clone(w.forwarded.setBacks[m.Partition])
	w.mu.Unlock()
	if times > 1 {
		w.count("repeat")
	}
	stamp, _, _ := stamp.From(m.Properties)
	s := sending{message: m.MessageID, stamp: stamp}
	for _, b := range setBacks {
		s.mayGoBack = s.mayGoBack || stamp.Low >= b.to
		if b.to < m.Sequence && m.Sequence <= b.from {
			s.setBacks++
		}
	}
	sent := *m
	sent.Properties = map[string]any{}
	if w.cfg.Chain.Unnamed {
		stamp.ID.N += 10 * times
	}
	if w.cfg.Chain.Silent {
		stamp.Parked = ""
	}
	if !w.cfg.Chain.Unstamped {
		stamp.SetTo(sent.Properties)
	}
	end, _ := w.nextHub.Bounds(context.Background(), partition)
	at := sluice.Position{Sequence: end.Last.Sequence + 1}
	after := w.empties(eventID{"onward", partition, at.Sequence + 1, 0})
	w.nextHub.Append(partition, append([]*sluice.Event{&sent}, after...)...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forwarded.sendings[written{partition, at.Sequence, 0}] = s
	w.blame.sentAs(eventID{"onward", partition, at.Sequence, 0}, string(m.Body))
}

// chainSettled reports whether the second stage has done all events in its log.
func (w *world) chainSettled() bool {
	if w.cfg.Chain == nil {
		return true
	}
	ctx, group := context.Background(), w.groups()[1]
	list, _ := w.storeOf(group).Read(ctx, group)
	for _, p := range list {
		if end, _ := w.nextHub.Bounds(ctx, p.Partition); p.Position.Sequence != end.Last.Sequence {
			return false
		}
	}
	return len(list) == w.cfg.Chain.Partitions && !w.redriving(group)
}

// DrawChain configures a world of two stages from a seed.
func DrawChain(seed uint64) Config {
	c := DrawStream(seed)
	r := rand.New(rand.NewPCG(seed, 3))
	c.Unsafe.LateCommit = r.IntN(2) == 0
	c.Themes = drawThemes(seed, drawnChain)
	c.Want = sluice.AllPartitions
	c.Partitions, c.Processes, c.Events = 1+r.IntN(3), 2, 20+r.IntN(30)
	c.Added = c.Partitions / 3
	c.Length = time.Duration(60+r.IntN(90)) * time.Second
	c.Chain = &chaining{Partitions: 1 + r.IntN(3), Apart: r.IntN(2) == 0}
	return c
}
