// Package figures keeps sums of a log's events in memory, by group and span of
// time, such that each published figure is a function of the log alone,
// whoever read it, and from where on.
//
// # The rule
//
// Every group has a time T, the beginning of its minute, hour or day. An event
// counts if the log has taken it within [T-Early, T+Late], and no event with
// its id that counts comes before it: all this is in the log. So what counts for
// a group lies in a known span of the log. Read from time S on, a group with
// T-Early >= S has all of it, and is whole; others are held back, as part of
// them may lie before S. Behind T+Late a group's figures don't change any more,
// and it is forgotten; and so are ids, once a repeat of them is too late to count.
package rollup

import (
	"errors"
	"strconv"
	"time"

	"github.com/sluice-go/sluice"
)

// Early is how long before its group's time an event may be enqueued: clocks
// differ.
const Early = 5 * time.Minute

// MaxGroups is how many groups a memory holds.
const MaxGroups = 1_000_000

// ErrTooManyGroups is what a group beyond MaxGroups is refused with.
var ErrTooManyGroups = errors.New("more than 1000000 groups in memory: make fewer, or keep them for a shorter time")

// Event is what a memory takes of an event.
type Event struct {
	Enqueued time.Time
	Sequence int64
	ID       *sluice.CausationID // nil: it is no other's repeat
	Parts    []string            // what names its group, but for the time; without NUL characters
	Time     time.Time           // its group's
	Values   []*Number           // one for each figure; nil: it lacks it
}

// Outcome is what became of an event.
type Outcome uint8

// The outcomes.
const (
	Counted       Outcome = iota
	Duplicate             // it has been counted under this id
	OutsideWindow         // it came before T-Early or after T+Late
	Incomplete            // its group isn't whole
)

// Group is a group's figures, as of an event.
type Group struct {
	Parts  []string
	Time   time.Time
	Values []string // as JSON
	// Version grows with each change of the group: the sequence number of the
	// last event that counted.
	Version int64
}

// Partition holds the figures of one partition. It belongs to one goroutine.
type Partition struct {
	functions []Function
	late      time.Duration

	from       time.Time // what counts from here on was read; the zero time: everything
	latest     time.Time // when the log took its newest event
	nextExpiry time.Time // when to look for what can be forgotten
	groups     map[string]*group
	key        []byte // of the last event's
	changed    []*group
	dedup      dedup
}

type group struct {
	parts   []string
	at      time.Time
	events  int64
	values  []accumulator
	version int64
	changed bool
}

// New makes the memory of a partition that is read from a time on; the zero
// time says that it is read from its very first event on.
func New(kinds []Function, late time.Duration, from time.Time) *Partition {
	return &Partition{functions: kinds, late: late, from: from, groups: map[string]*group{}, dedup: dedup{}}
}

// Groups is how many groups are in memory.
func (m *Partition) Groups() int { return len(m.groups) }

// Add takes an event in, which must be the log's next.
func (m *Partition) Add(e *Event) (Outcome, error) {
	if e.Enqueued.After(m.latest) {
		m.latest = e.Enqueued
	}
	switch {
	case e.Enqueued.Before(e.Time.Add(-Early)), e.Enqueued.After(e.Time.Add(m.late)):
		return OutsideWindow, nil
	case e.Time.Add(-Early).Before(m.from):
		return Incomplete, nil
	case e.ID != nil && !m.dedup.add(*e.ID, e.Enqueued):
		return Duplicate, nil
	}
	key := strconv.AppendInt(m.key[:0], e.Time.Unix(), 10)
	for _, part := range e.Parts {
		key = append(append(key, 0), part...)
	}
	m.key = key
	g := m.groups[string(key)]
	if g == nil {
		if len(m.groups) == MaxGroups {
			return Incomplete, ErrTooManyGroups
		}
		g = &group{parts: e.Parts, at: e.Time, values: make([]accumulator, len(m.functions))}
		m.groups[string(key)] = g
	}
	g.events++
	for i, n := range e.Values {
		g.values[i].add(m.functions[i], n)
	}
	g.version = e.Sequence
	if !g.changed {
		g.changed = true
		m.changed = append(m.changed, g)
	}
	return Counted, nil
}

// Changed returns the groups that have changed since it was last called, in
// the order in which they did, and forgets what can't change any more.
func (m *Partition) Changed() []Group {
	list := make([]Group, len(m.changed))
	for i, g := range m.changed {
		g.changed = false
		list[i] = Group{Parts: g.parts, Time: g.at, Version: g.version, Values: make([]string, len(m.functions))}
		for k, kind := range m.functions {
			list[i].Values[k] = g.values[k].json(kind, g.events)
		}
	}
	m.changed = m.changed[:0]
	if m.latest.After(m.nextExpiry) {
		m.expire()
		m.nextExpiry = m.latest.Add(expireEvery)
	}
	return list
}

// expireEvery is how much of the log's time passes between two looks at what
// can be forgotten.
const expireEvery = time.Minute

// expire allows for times of the log that go back a little.
func (m *Partition) expire() {
	for key, g := range m.groups {
		if g.at.Add(m.late + Early).Before(m.latest) {
			delete(m.groups, key)
		}
	}
	m.dedup.expire(m.latest.Add(-m.late - 2*Early))
}
