package sim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/bounds"
	"github.com/sluice-go/sluice/stamp"
)

// books are what the events of a stage left behind: its checkpoints, effects and dead letters.
type books struct {
	checkpoints map[string]sluice.Checkpoint
	entries     map[string][]audit.Entry // by partition, ascending
}

type pages struct {
	*books
	partition string
}

func (b *books) Open(_ context.Context, _ sluice.Topic, partition string) (audit.View, error) {
	return pages{b, partition}, nil
}

func (p pages) Checkpoint(context.Context) (sluice.Checkpoint, bool, error) {
	c, found := p.checkpoints[p.partition]
	return c, found, nil
}

func (p pages) Entries(context.Context) iter.Seq2[audit.Entry, error] {
	return func(yield func(audit.Entry, error) bool) {
		for _, e := range p.entries[p.partition] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (p pages) Close() error { return nil }

// audited is a stage's log, for an audit after all processes have ended.
type audited struct {
	driver.Source
	partitions int
}

// auditEpoch is above those of all readers that processes have left open.
const auditEpoch = 1 << 40

func (a audited) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := a.Source.Describe(ctx)
	topic.Partitions = topic.Partitions[:a.partitions]
	return topic, err
}

func (a audited) Open(ctx context.Context, partition string, after sluice.Position, _ int64) (driver.Reader, error) {
	return a.Source.Open(ctx, partition, after, auditEpoch)
}

// logOf returns the log of a stage.
func (w *world) logOf(g sluice.Group) audited {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g != w.group {
		return audited{w.nextHub, w.cfg.Chain.Partitions}
	}
	return audited{w.hub, w.present()}
}

// booksOf returns the books of a stage. Where events are delivered at least once, they have one
// entry each.
func (w *world) booksOf(g sluice.Group, incarnation string) *books {
	ctx, store := context.Background(), w.storeOf(g)
	b := &books{checkpoints: map[string]sluice.Checkpoint{}, entries: map[string][]audit.Entry{}}
	list, _ := store.Read(ctx, g)
	for _, c := range list {
		b.checkpoints[c.Partition] = c
	}
	first := g == w.group
	if !first || w.cfg.Chain == nil {
		for _, row := range store.Rows("effects") {
			if e := row.(effect); !first || e.life == w.life {
				b.entries[e.partition] = append(b.entries[e.partition], audit.Entry{Sequence: e.sequence})
			}
		}
	}
	if first {
		for at := range w.written {
			if at.life == w.life {
				b.entries[at.partition] = append(b.entries[at.partition], audit.Entry{Sequence: at.sequence})
			}
		}
	}
	letters, _ := store.List(ctx, g, sluice.DeadLetterFilter{})
	for i := range letters {
		if l := &letters[i]; l.Incarnation == incarnation {
			b.entries[l.Event.Partition] = append(b.entries[l.Event.Partition], audit.Entry{Sequence: l.Event.Sequence, DeadLetter: true})
		}
	}
	for partition, entries := range b.entries {
		slices.SortFunc(entries, func(a, b audit.Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
		if first && w.cfg.Stream != nil {
			entries = slices.CompactFunc(entries, func(a, b audit.Entry) bool { return a.Sequence == b.Sequence })
		}
		b.entries[partition] = entries
	}
	return b
}

// checkAudit runs the audit that operators run. It must find nothing but what the world knows of,
// and then each loss that is planted. All processes have ended.
func (w *world) checkAudit() (bad []string) {
	for _, g := range w.groups() {
		log := w.logOf(g)
		topic, _ := log.Describe(context.Background())
		b := w.booksOf(g, topic.Incarnation)
		found, err := w.runAudit(log, b, g)
		if err != nil {
			bad = append(bad, fmt.Sprintf("the audit of %s ends: %v", g.Topic, err))
			continue
		}
		for _, f := range found.Faults {
			for n := f.First; n <= f.Last; n++ {
				if !w.explained(g, f.Kind, f.Partition, n) {
					bad = append(bad, fmt.Sprintf("the audit of %s says that event %d of partition %s is %s", g.Topic, n, f.Partition, f.Kind))
				}
			}
		}
		for i := range found.Partitions {
			if p := &found.Partitions[i]; p.Doubt != "" && !w.doubtful(p) {
				bad = append(bad, fmt.Sprintf("the audit of %s says that partition %s %s", g.Topic, p.ID, p.Doubt))
			}
		}
		bad = append(bad, w.checkPlanted(log, b, g, found)...)
	}
	return bad
}

func (w *world) runAudit(log audited, b *books, g sluice.Group) (*audit.Report, error) {
	cfg := &audit.Config{Parallel: 1}
	if g != w.group {
		cfg.StampsFrom = []stamp.Source{{Topic: w.group.Topic}}
	}
	return audit.Run(context.Background(), log, b, g, cfg)
}

// explained reports whether the world knows why an event may have no effect, or several.
func (w *world) explained(g sluice.Group, kind audit.FaultKind, partition string, n int64) bool {
	id := eventID{g.Topic, partition, n, w.life}
	if g != w.group {
		event, _, _ := strings.Cut(w.forwarded.sendings[written{partition, n, 0}].message, ".")
		id = w.forwarded.event[event]
	}
	switch kind {
	case audit.Lost, audit.Expired:
		return w.lost[id]
	case audit.Duplicated:
		return w.isRepeated(id) || g != w.group && w.forwarded.full[partition]
	}
	return false
}

// doubtful reports whether a partition may be in doubt: a failover has lost its checkpoint. An
// owner that knows what is done stores it again without the beginning. Without an owner and without
// the leases, the partition begins again. Where bounds are small, the audit reaches them.
func (w *world) doubtful(p *audit.Partition) bool {
	if bounds.Small && p.Doubt == audit.TooManyIDs {
		return true
	}
	return (p.Doubt == audit.EarlierEffects || p.Doubt == audit.NoBeginning) && w.fired["failover that loses commits"] > 0
}

// planted begins the names of falsifications among the kinds of faults.
const planted = "books with "

// The falsifications.
const (
	aLoss        = "a loss"
	hiddenLoss   = "a loss, and a beginning behind it"
	tooEarly     = "a beginning before the truth"
	tooLate      = "a beginning after the checkpoint"
	withoutStart = "no beginning"
)

// plants are those that are possible in all worlds. Only operators leave events before a beginning.
var plants = []string{aLoss, hiddenLoss, tooLate, withoutStart}

// plant is a falsification of the books of one partition, and what an audit must say then.
type plant struct {
	what  string
	lost  []int64
	doubt audit.Doubt
}

// checkPlanted falsifies the books of each partition in one way, and checks that another audit
// finds it.
func (w *world) checkPlanted(log audited, b *books, g sluice.Group, before *audit.Report) (bad []string) {
	falsified := map[string]plant{}
	now := &books{checkpoints: maps.Clone(b.checkpoints), entries: maps.Clone(b.entries)}
	for i := range before.Partitions {
		p := &before.Partitions[i]
		if p.Doubt == "" && p.Checkpoint >= 0 {
			falsified[p.ID] = w.falsify(now, g, p, w.cfg.Seed+uint64(i))
			w.fired[planted+falsified[p.ID].what]++
		}
	}
	after, err := w.runAudit(log, now, g)
	if err != nil {
		return []string{fmt.Sprintf("the audit of %s with planted losses ends: %v", g.Topic, err)}
	}
	for i := range after.Partitions {
		p := &after.Partitions[i]
		plant, is := falsified[p.ID]
		want := append(lostOf(before, p.ID), plant.lost...)
		slices.Sort(want)
		got := lostOf(after, p.ID)
		if is && (p.Doubt != plant.doubt || plant.doubt == "" && !slices.Equal(got, want)) {
			bad = append(bad, fmt.Sprintf("the audit of %s, partition %s, after %s: lost %v, doubt %q, want lost %v, doubt %q", g.Topic, p.ID, plant.what, got, p.Doubt, want, plant.doubt))
		}
	}
	if len(falsified) > 0 && after.Exact() {
		bad = append(bad, fmt.Sprintf("the audit of %s with planted losses says %s", g.Topic, after.Headline()))
	}
	return bad
}

// lostOf returns the events of a partition that a report calls lost.
func lostOf(r *audit.Report, partition string) (list []int64) {
	for _, f := range r.Faults {
		for n := f.First; f.Kind == audit.Lost && f.Partition == partition && n <= f.Last; n++ {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// falsify falsifies the books of a partition, in a way that the number chooses of those that are
// possible.
func (w *world) falsify(b *books, g sluice.Group, p *audit.Partition, number uint64) plant {
	entries, c := b.entries[p.ID], b.checkpoints[p.ID]
	defer func() { b.checkpoints[p.ID] = c }()
	start := max(p.Began.After+1, 0)
	var kept []int64 // the events with one entry that an audit checks
	has := map[int64]int{}
	for _, e := range entries {
		if has[e.Sequence]++; e.Sequence >= max(start, p.First) && e.Sequence <= p.Checkpoint {
			kept = append(kept, e.Sequence)
		}
	}
	kept = slices.DeleteFunc(kept, func(n int64) bool { return has[n] > 1 })
	var earlier []int64 // events without an entry before the beginning
	for n := p.First; n < min(start, p.Checkpoint+1); n++ {
		if has[n] == 0 && !w.isEmpty(eventID{g.Topic, p.ID, n, w.life}) {
			earlier = append(earlier, n)
		}
	}
	remove := func(n int64) {
		b.entries[p.ID] = slices.DeleteFunc(slices.Clone(entries), func(e audit.Entry) bool { return e.Sequence == n })
	}
	way := number % 5
	switch {
	case len(earlier) > 0 && g == w.group && way < 3:
		c.Began = driver.Beginning{After: driver.Origin.Sequence, How: driver.HowSet}
		return plant{what: tooEarly, lost: earlier}
	case way == 1 && len(kept) > 1 && p.Began.How == driver.HowStart:
		n := kept[1+number/5%uint64(len(kept)-1)]
		remove(n)
		c.Began.After = n
		return plant{what: hiddenLoss, doubt: audit.EarlierEffects}
	case way == 2:
		c.Began.After = p.Checkpoint + 1
		return plant{what: tooLate, doubt: audit.BeganLater}
	case way > 2 && len(kept) > 0:
		n := kept[number/5%uint64(len(kept))]
		remove(n)
		return plant{what: aLoss, lost: []int64{n}}
	}
	c.Began = driver.Beginning{}
	return plant{what: withoutStart, doubt: audit.NoBeginning}
}
