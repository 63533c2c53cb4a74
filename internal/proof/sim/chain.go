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
	"github.com/sluice-go/sluice/sluicetest"
)

// chaining configures worlds of two stages: the first delivers at least once, into
// the log of the second, which is transactional.
type chaining struct {
	Partitions int // of the log between them

	// Mutants.
	Unstamped bool // the second stage sees no stamps
	Unnamed   bool // it sees watermarks and epochs, but no two equal ids
	Early     bool // the watermark is the highest event sent, instead of the checkpoint stored
	Silent    bool // the stamp does not name the dead letters before the event
}

// link makes the log between the two stages, and the slots of the second.
func (w *world) link() {
	if w.cfg.Chain == nil {
		return
	}
	w.nextHub = sluicetest.NewHub(w.groupOf(ofSecondStage), w.cfg.Chain.Partitions)
	w.forwarded = forwarded{made: map[string]int{}, event: map[string]eventID{}, times: map[string]int{}, at: map[written]string{}, excused: map[string]bool{}}
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
	n := 1
	switch kind, _, _ := strings.Cut(string(e.Body), " "); kind {
	case "none":
		p.w.write(e)
		return nil, nil
	case "two", "half":
		n = 2
	case "refused":
		if stamp, _ := sluice.StampOf(ctx, e, 0); !stamp.Redrive {
			return nil, errors.New("refused")
		}
	}
	p.w.mu.Lock()
	p.w.forwarded.made[place(e)] = n
	p.w.forwarded.event[place(e)] = p.w.idOf(e)
	p.w.mu.Unlock()
	list := make([]*sluice.Event, n)
	for i := range list {
		stamp, _ := sluice.StampOf(ctx, e, i)
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

func (f *nextStageSink) Submit(ctx context.Context, m *sluice.Event, done func(sluice.WriteResult)) {
	if f.w.cfg.Chain.Early {
		f.w.mu.Lock()
		f.sent[m.Partition] = max(f.sent[m.Partition], m.Sequence)
		low := f.sent[m.Partition]
		f.w.mu.Unlock()
		stamp, _, _ := sluice.StampFrom(m.Properties)
		stamp.Low = low
		stamp.SetTo(m.Properties)
	}
	f.w.live.Go(func() { done(sluice.WriteResult{Err: f.put(ctx, m), Cost: 1}) })
}

// put appends one message, to a partition chosen by its event and number. Of some
// events the second message is refused until the event is redriven.
func (f *nextStageSink) put(ctx context.Context, m *sluice.Event) error {
	stamp, _, _ := sluice.StampFrom(m.Properties)
	if kind, _, _ := strings.Cut(string(m.Body), " "); kind == "half" && stamp.ID.N == 1 && !stamp.Redrive {
		return sluice.Reject(errors.New("too large"))
	}
	to := fmt.Sprint((int(m.Sequence%5) + len(m.MessageID)) % f.w.cfg.Chain.Partitions)
	err := f.w.send(ctx, f.process, "append", m.MessageID, func() error {
		f.w.append(to, m)
		return nil
	})
	switch {
	case err == nil:
		return nil
	case f.w.coin(0.2, "blame append "+m.MessageID):
		return sluice.Outage(err)
	}
	return sluice.RetryAfter(err, time.Duration(10+len(m.MessageID))*time.Millisecond)
}

// forwarded records what the first stage has sent to the second.
type forwarded struct {
	made  map[string]int     // of an event, by its place: how many messages
	event map[string]eventID // by its place
	times map[string]int     // of a message: how often it was appended
	at    map[written]string // of an event between the stages: which message it is
	// excused are events that an owner has parked after another owner had taken over
	// and may have sent them. No fence prevents that, so a redrive may send them again.
	excused map[string]bool
}

// excuse records the events that a process parks after another has taken over.
func (w *world) excuse(p *process, list []sluice.DeadLetter) {
	if w.cfg.Chain == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range list {
		if w.claimer[partitionName(sluice.Lease{Group: l.Group, Partition: l.Event.Partition})] != p {
			w.forwarded.excused[place(&l.Event)] = true
		}
	}
}

// append appends a message to the log of the second stage.
func (w *world) append(partition string, m *sluice.Event) {
	w.write(m)
	w.mu.Lock()
	w.forwarded.times[m.MessageID]++
	times := w.forwarded.times[m.MessageID]
	w.mu.Unlock()
	if times > 1 {
		w.count("repeat")
	}
	stamp, _, _ := sluice.StampFrom(m.Properties)
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
	at := w.nextHub.Append(partition, &sent)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forwarded.at[written{partition, at.Sequence, 0}] = m.MessageID
	w.blame.sentAs(eventID{"onward", partition, at.Sequence, 0}, string(m.Body))
}

// chainSettled reports whether the second stage has done all events in its log.
func (w *world) chainSettled() bool {
	if w.cfg.Chain == nil {
		return true
	}
	ctx, group := context.Background(), w.groups()[1]
	list, _ := w.store.Read(ctx, group)
	for _, p := range list {
		if end, _ := w.nextHub.Bounds(ctx, p.Partition); p.Position.Sequence != end.Last.Sequence {
			return false
		}
	}
	return len(list) == w.cfg.Chain.Partitions && !w.redriving(group)
}

// checkChain returns the violations at the end of the chain, after the first stage's
// dead letters were redriven: none may be left, and each message must have taken
// effect once or be a dead letter once, however often it was sent. (A message that
// arrives when the watermark has passed its event, a dead letter, has no effect;
// the redrive sends it again.)
func (w *world) checkChain() []string {
	if w.cfg.Chain == nil {
		return nil
	}
	effects := map[string]map[string]int{}
	for _, table := range []string{"effects", "effects too"} {
		effects[table] = map[string]int{}
		for _, row := range w.store.Rows(table) {
			e := row.(effect)
			effects[table][w.forwarded.at[written{e.partition, e.sequence, 0}]]++
		}
	}
	ctx, groups := context.Background(), w.groups()
	parked := map[string]int{}
	list, _ := w.store.List(ctx, groups[1], sluice.DeadLetterFilter{})
	for _, l := range list {
		parked[w.forwarded.at[written{l.Event.Partition, l.Event.Sequence, 0}]]++
	}
	var bad []string
	list, _ = w.store.List(ctx, groups[0], sluice.DeadLetterFilter{})
	for _, l := range list {
		bad = append(bad, fmt.Sprintf("event %s is still a dead letter after its redrive: %s", place(&l.Event), l.Error))
	}
	for id := range w.forwarded.times {
		event, _, _ := strings.Cut(id, ".")
		lost := w.lost[w.forwarded.event[event]]
		n, too := effects["effects"][id], effects["effects too"][id]
		switch once := n + parked[id]; {
		case once == 1 && too == n:
		case once == 0 && too == 0 && lost:
		case once > 1 && w.forwarded.excused[event]:
		default:
			bad = append(bad, fmt.Sprintf("message %s was sent %d times, and has %d effects, %d second effects, %d dead letters", id, w.forwarded.times[id], n, too, parked[id]))
		}
	}
	for event, n := range w.forwarded.made {
		for i := range n {
			if id := fmt.Sprintf("%s.%d", event, i); w.forwarded.times[id] == 0 && !w.lost[w.forwarded.event[event]] {
				bad = append(bad, fmt.Sprintf("message %s was never sent", id))
			}
		}
	}
	slices.Sort(bad)
	return bad
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
	c.Chain = &chaining{Partitions: 1 + r.IntN(3)}
	return c
}
