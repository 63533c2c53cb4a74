package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// The last phase of some worlds is a contest: in up to two partitions many events and many redrives
// wait for the same time, and nothing makes trouble. The handler, the sink and the opening of a
// reader take long, so that the time is scarce. Each of the two must have a third of it.

const (
	contestEvents  = 300
	contestLetters = 60
	firstRedrive   = 30 * time.Second // within this time one of the redrives is tried
	longContest    = 6 * time.Second  // a shorter one has too few turns to be judged
	longStream     = 10 * time.Second // of records, if redrives had less: the first round does not count
	turnOver       = time.Second      // as much may be missing, because the last turn is cut short
)

// contest is what a partition's events and redrives have had of its time.
type contest struct {
	each, opening      time.Duration // how long an attempt takes, and a reader to open
	events, redrives   int           // that take part
	tried              map[submission]bool
	triedOf            [2]int // of events, of redrives
	spent              [2]time.Duration
	began, last        time.Time // when the redrives were asked for; the last attempt's end
	process            *process  // who made it
	first, ended, done bool      // a redrive was tried; none or no event waits; it was judged
}

// contestOf returns the contest of a partition of the first stage that has not ended.
func (p *process) contestOf(partition string) *contest {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if c := p.w.contests[partition]; c != nil && !p.replays && !p.secondStage && !c.done {
		return c
	}
	return nil
}

// takeTurn makes n attempts take their time in a contest.
func (p *process) takeTurn(ctx context.Context, partition string, n int) {
	if c := p.contestOf(partition); c != nil {
		_ = p.w.sleep(ctx, p, time.Duration(n)*c.each)
	}
}

// openTurn makes the opening of a reader take its time in a contest.
func (p *process) openTurn(ctx context.Context, partition string) {
	if c := p.contestOf(partition); c != nil && c.opening > 0 {
		_ = p.w.sleep(ctx, p, c.opening)
	}
}

// hadTurn notes attempts that have ended. The time since the attempts before them was theirs: what
// the engine did in it, such as to open a reader, was for them.
func (p *process) hadTurn(redrive bool, events ...*sluice.Event) {
	c := p.contestOf(events[0].Partition)
	if c == nil {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	kind := 0
	if redrive {
		kind = 1
	}
	now := time.Now()
	if c.first && !c.ended && c.process == p {
		c.spent[kind] += now.Sub(c.last)
	}
	c.process, c.last, c.first = p, now, c.first || redrive && !c.began.IsZero()
	for _, e := range events {
		if s := (submission{e.Sequence, redrive}); !c.tried[s] && !c.began.IsZero() {
			c.tried[s] = true
			c.triedOf[kind]++
		}
	}
	c.ended = c.triedOf[0] >= c.events || c.triedOf[1] >= c.redrives
}

// checkTurns runs a contest in every third world, and checks the shares.
func (w *world) checkTurns() (bad []string) {
	if w.cfg.Chain != nil || w.cfg.Free || w.cfg.Seed%3 != 0 || !w.settled() {
		return nil
	}
	ctx := context.Background()
	w.mu.Lock()
	first := map[string]int64{}
	for n := range min(2, w.present()) {
		partition := fmt.Sprint(n)
		first[partition] = w.sent[partition]
		w.contests[partition] = &contest{tried: map[submission]bool{}}
	}
	w.mu.Unlock()
	partitions := slices.Sorted(maps.Keys(first))
	for _, partition := range partitions {
		w.appendAll(partition, "reject", contestLetters)
	}
	w.drive(time.Now().Add(20 * time.Second))
	w.settle()
	w.mu.Lock()
	for _, partition := range partitions {
		c := w.contests[partition]
		c.each = time.Duration(50+w.rng.IntN(150)) * time.Millisecond
		c.opening = time.Duration(w.rng.IntN(500)) * time.Millisecond
		c.events = contestEvents
	}
	w.mu.Unlock()
	for _, partition := range partitions {
		w.appendAll(partition, "good", contestEvents)
		n := first[partition]
		filter := sluice.DeadLetterFilter{Partition: partition, FirstSequence: &n, Status: []sluice.DeadLetterStatus{sluice.StatusDead}}
		marked, _ := w.store.Redrive(ctx, w.group, filter, time.Time{})
		w.mu.Lock()
		w.contests[partition].redrives, w.contests[partition].began = int(marked), time.Now()
		w.mu.Unlock()
	}
	for range 180 {
		w.drive(time.Now().Add(time.Second))
		w.mu.Lock()
		open := false
		for _, partition := range partitions {
			c := w.contests[partition]
			bad = append(bad, c.judge(w, partition)...)
			open = open || !c.done
		}
		w.mu.Unlock()
		if !open {
			break
		}
	}
	return bad
}

// appendAll appends events of one kind, without a key, to a partition.
func (w *world) appendAll(partition, kind string, n int) {
	w.mu.Lock()
	var list []*sluice.Event
	for n > 0 {
		at := w.sent[partition]
		w.sent[partition]++
		id := eventID{w.group.Topic, partition, at, w.life}
		if w.isEmpty(id) {
			list = append(list, &sluice.Event{Control: true})
			continue
		}
		n--
		body := fmt.Sprintf("%s %d %d", kind, at, w.life)
		list = append(list, &sluice.Event{Body: []byte(body)})
		w.blame.sentAs(id, body)
	}
	w.mu.Unlock()
	w.hub.Append(partition, list...)
	w.copyHub.Append(partition, list...)
}

// judge returns the violations of a contest that is over, or in which no redrive begins. The lock
// is held.
func (c *contest) judge(w *world, partition string) []string {
	if c.done {
		return nil
	}
	complain := func(format string, args ...any) []string {
		c.done = true
		return []string{fmt.Sprintf("partition %s: while events and redrives wait, ", partition) + fmt.Sprintf(format, args...)}
	}
	all := c.spent[0] + c.spent[1]
	switch {
	case !c.first && !c.ended && time.Since(c.began) > firstRedrive:
		return complain("no redrive was tried for %v", firstRedrive)
	case !c.ended:
		return nil
	case all < longContest, all < longStream && c.spent[1] > 0 && c.spent[1] < c.spent[0] && w.cfg.Stream != nil && w.cfg.Stream.Batches == nil:
		c.done = true
		return nil
	}
	c.done = true
	w.fired[takesTurns]++
	if least := all/3 - turnOver; c.spent[0] < least || c.spent[1] < least {
		return complain("events had %v and redrives %v, each must have a third (%v for an attempt, %v to open a reader; %d events and %d redrives were tried)", c.spent[0], c.spent[1], c.each, c.opening, c.triedOf[0], c.triedOf[1])
	}
	return nil
}

// takesTurns counts the contests that were long enough to be judged.
const takesTurns = "contest of events and redrives"
