package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/stamp"
)

// sending is one time that a message was appended to the log between two stages.
type sending struct {
	message string
	stamp   stamp.Stamp
	// mayGoBack says that a failover has set the checkpoint of the message's event back, to
	// the stamp's watermark or below it.
	mayGoBack bool
	// setBacks is how many failovers had set the checkpoint, which had passed the message's
	// event, back behind it.
	setBacks int
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
	message := func(partition string, sequence int64) string {
		return w.forwarded.sendings[written{partition, sequence, 0}].message
	}
	effects := map[string]map[string]int{}
	for _, table := range []string{"effects", "effects too"} {
		effects[table] = map[string]int{}
		for _, row := range w.nextStore.Rows(table) {
			e := row.(effect)
			effects[table][message(e.partition, e.sequence)]++
		}
	}
	ctx, groups := context.Background(), w.groups()
	parked := map[string]int{}
	list, _ := w.nextStore.List(ctx, groups[1], sluice.DeadLetterFilter{})
	for _, l := range list {
		parked[message(l.Event.Partition, l.Event.Sequence)]++
	}
	var bad []string
	list, _ = w.store.List(ctx, groups[0], sluice.DeadLetterFilter{})
	for _, l := range list {
		bad = append(bad, fmt.Sprintf("event %s is still a dead letter after its redrive: %s", place(&l.Event), l.Error))
	}
	most, unexplained := w.mostEffects()
	bad = append(bad, unexplained...)
	for id := range w.forwarded.times {
		event, _, _ := strings.Cut(id, ".")
		lost := w.lost[w.forwarded.event[event]]
		n, too := effects["effects"][id], effects["effects too"][id]
		switch once := n + parked[id]; {
		case too == n && once > 0 && once <= most[id]:
		case once == 0 && too == 0 && lost:
		case once > 1 && w.forwarded.excused[event]:
		case too == n && once > 1 && w.forgets(id):
		default:
			bad = append(bad, fmt.Sprintf("message %s was sent %d times, and has %d effects, %d second effects, %d dead letters, of %d at most", id, w.forwarded.times[id], n, too, parked[id], most[id]))
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

// forgets reports whether the second stage has reported a bound in the partition of a message.
func (w *world) forgets(message string) bool {
	for at, s := range w.forwarded.sendings {
		if s.message == message && w.forwarded.full[at.partition] {
			return true
		}
	}
	return false
}

// mark is the watermark of the highest epoch that one partition of the log between the stages
// has seen of one partition of the first stage.
type mark struct {
	epoch, low int64
	backs      []int64 // the watermarks that went back
}

// mostEffects returns how often each message may take effect: once, and once more after each
// watermark that went back behind its event, because the first stage's database has lost its
// checkpoint. That looks as if an operator had set the checkpoint back to repeat events.
// Watermarks that went back for no reason are violations.
//
// A partition of the log between the stages does not see that the checkpoint was set back if
// the watermark of the next owner has the epoch of the lost one (the leases were lost too), or
// if nothing of that owner comes before its checkpoint has passed the lost one. Then the events
// that the owner repeats are duplicates. But those that become dead letters now were accepted
// before the failover, and their ids are forgotten: the redrive takes effect once more.
func (w *world) mostEffects() (most map[string]int, bad []string) {
	order := slices.SortedFunc(maps.Keys(w.forwarded.sendings), func(a, b written) int {
		return cmp.Or(strings.Compare(a.partition, b.partition), cmp.Compare(a.sequence, b.sequence))
	})
	marks, ages := map[[2]string]*mark{}, map[string]map[int]bool{}
	for _, at := range order {
		s := w.forwarded.sendings[at]
		from := [2]string{at.partition, s.stamp.ID.Partition}
		m := marks[from]
		if m == nil {
			m = &mark{epoch: -1, low: -1}
			marks[from] = m
		}
		back := m.see(&s.stamp)
		if back {
			w.count(goesBack)
		}
		if back && !s.mayGoBack {
			bad = append(bad, fmt.Sprintf("message %s: its watermark %d of epoch %d went back without a failover", s.message, s.stamp.Low, s.stamp.Epoch))
		}
		if ages[s.message] == nil {
			ages[s.message] = map[int]bool{}
		}
		age := m.age(s.stamp.ID.Sequence)
		if s.stamp.Redrive && s.stamp.ID.Sequence <= m.low {
			age = max(age, s.setBacks)
		}
		ages[s.message][age] = true
	}
	most = map[string]int{}
	for message, of := range ages {
		most[message] = len(of)
	}
	return most, bad
}

// see takes the next stamp, and reports whether its watermark went back.
func (m *mark) see(s *stamp.Stamp) (back bool) {
	switch {
	case s.Redrive || s.Epoch < m.epoch:
		return false
	case s.Epoch > m.epoch && s.Low < m.low:
		m.backs, back = append(m.backs, s.Low), true
		m.low = s.Low
	}
	m.epoch, m.low = s.Epoch, max(m.low, s.Low)
	return back
}

// age is how many watermarks went back behind an event so far.
func (m *mark) age(event int64) (n int) {
	for _, low := range m.backs {
		if low < event {
			n++
		}
	}
	return n
}
