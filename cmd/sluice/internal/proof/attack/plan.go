//go:build linux

package attack

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fault is a fault of a process or of a connection between two of them.
type Fault string

// The faults.
const (
	Kill        Fault = "consumer killed (SIGKILL), started again"
	KillHub     Fault = "hub killed (SIGKILL), started again"
	PauseBegin  Fault = "paused past the lease, its transaction's first statement under way"
	PauseWrite  Fault = "paused past the lease, inside its transaction"
	PauseCommit Fault = "paused past the lease, its COMMIT under way"
	PauseAny    Fault = "paused past the lease, anywhere"
	Jump        Fault = "leases expire early, as after a clock jump"
	KillBroker  Fault = "broker killed (SIGKILL), started again"
	PauseBroker Fault = "broker paused, up to twice its session's timeout"
	CutBroker   Fault = "broker cut off from the other brokers"
	FillBroker  Fault = "broker's disk filled until the broker ended, started again with space"
	MoveLeader  Fault = "leader of a partition moved"
	Crash       Fault = "database server stopped as by a crash, started again"
	Reset       Fault = "connections reset"
	BlackHole   Fault = "bytes dropped, then connections cut"
	Unplug      Fault = "network cable pulled, plugged in again"
	CutBefore   Fault = "COMMIT cut off before the server"
	LoseReply   Fault = "COMMIT's reply dropped"
	DeliverLate Fault = "COMMIT delivered late"
)

// Faults are all faults, in the order of a report.
var Faults = []Fault{Kill, KillHub, KillBroker, PauseBroker, CutBroker, FillBroker, MoveLeader, PauseBegin, PauseWrite, PauseCommit, PauseAny, Jump, Crash, Reset, BlackHole, Unplug, CutBefore, LoseReply, DeliverLate}

// Plan says how often each fault strikes, and how much load there is.
type Plan struct {
	Seed   uint64        // of the random numbers that choose what strikes when and where
	Events int           // number of events to send at least
	Rate   int           // events sent per second, after the first tenth
	Fenced int           // number of transactions that the database must refuse after a pause; pauses continue until then
	Strike map[Fault]int // how often each fault strikes
}

// share is a fault's part of a group.
type share struct {
	fault Fault
	parts int
}

// groups are the words of [Plan.Set] that stand for one or more faults, with the
// share of each.
var groups = map[string][]share{
	"kills":      {{Kill, 5}, {KillHub, 1}},
	"consumers":  {{Kill, 1}},
	"brokers":    {{KillBroker, 4}, {PauseBroker, 2}, {CutBroker, 2}, {MoveLeader, 4}},
	"disks":      {{FillBroker, 1}},
	"pauses":     {{PauseBegin, 7}, {PauseWrite, 2}, {PauseCommit, 2}, {PauseAny, 1}},
	"jumps":      {{Jump, 1}},
	"crashes":    {{Crash, 1}},
	"resets":     {{Reset, 1}},
	"blackholes": {{BlackHole, 1}},
	"unplugs":    {{Unplug, 1}},
	"commits":    {{CutBefore, 1}, {LoseReply, 1}, {DeliverLate, 1}},
	"late":       {{DeliverLate, 1}},
}

// Set changes the plan by words like "kills=30 seed=7". They are seed, events, rate, fenced, kills
// (of consumers and of the hub), consumers (killed), brokers (a third each killed and without their
// leaders, a sixth each paused and cut off), disks (of brokers, filled), pauses, jumps, crashes,
// resets, blackholes, unplugs, commits (a third each cut off, answer dropped and late), and late
// (of commits).
func (p *Plan) Set(text string) error {
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return fmt.Errorf("%s: write NAME=NUMBER", word)
		}
		shares, group := groups[name]
		switch {
		case group:
			p.share(shares, int(n))
		case name == "seed":
			p.Seed = n
		case name == "events":
			p.Events = int(n)
		case name == "rate":
			p.Rate = int(n)
		case name == "fenced":
			p.Fenced = int(n)
		default:
			return fmt.Errorf("%s: there are seed, events, rate, fenced, %s", word, strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
		}
	}
	return nil
}

// share divides n among faults; the remainder goes to the first.
func (p *Plan) share(list []share, n int) {
	if p.Strike == nil {
		p.Strike = map[Fault]int{}
	}
	all, given := 0, 0
	for _, s := range list {
		all += s.parts
	}
	for _, s := range list {
		p.Strike[s.fault] = n * s.parts / all
		given += p.Strike[s.fault]
	}
	p.Strike[list[0].fault] += n - given
}

// tally counts the faults that have struck and those that are left. It is safe
// for concurrent use.
type tally struct {
	mu     sync.Mutex
	left   map[Fault]int
	drawn  map[Fault]int // neither struck nor put back yet
	struck map[Fault]int
	fenced int // transactions that the database has refused after a pause
	owed   int // how many of them there must be
}

func newTally(p *Plan) *tally {
	return &tally{left: maps.Clone(p.Strike), drawn: map[Fault]int{}, struck: map[Fault]int{}, owed: p.Fenced}
}

// draw takes one of the faults that are left, each with a probability in
// proportion to how many are left of it.
func (t *tally) draw(random *rand.Rand, among ...Fault) (Fault, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := 0
	for _, f := range among {
		all += t.left[f]
	}
	if all == 0 {
		if t.fenced < t.owed && slices.Contains(among, PauseBegin) {
			t.drawn[PauseBegin]++
			return PauseBegin, true
		}
		return "", false
	}
	n := random.IntN(all)
	for _, f := range among {
		if n -= t.left[f]; n < 0 {
			t.left[f]--
			t.drawn[f]++
			return f, true
		}
	}
	panic("unreachable")
}

// any reports whether one of the faults is left.
func (t *tally) any(among ...Fault) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fenced < t.owed || slices.ContainsFunc(among, func(f Fault) bool { return t.left[f] > 0 })
}

// underWay reports whether one of the faults was drawn and may be put back.
func (t *tally) underWay(among ...Fault) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(among, func(f Fault) bool { return t.drawn[f] > 0 })
}

// putBack returns a fault that found nothing to strike.
func (t *tally) putBack(f Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left[f]++
	t.drawn[f]--
}

func (t *tally) strike(f Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.struck[f]++
	t.drawn[f]--
}

func (t *tally) sawFenced(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fenced += n
}

// counts returns how often each fault has struck, and how many transactions
// the database has refused after a pause.
func (t *tally) counts() (map[Fault]int, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.struck), t.fenced
}
