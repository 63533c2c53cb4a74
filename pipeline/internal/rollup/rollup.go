// Package rollup keeps statistics of a log's events in memory, by group and unit of
// time. Every published statistic is a function of the log alone: it does not depend
// on who read the log, and from where on.
//
// # The rule
//
// Every group has a time T, the beginning of its minute, hour or day. An event
// counts if the log enqueued it within [T-Early, T+Late], and no event with its id
// that counts comes before it. Both follow from the log. So all events that count
// for a group lie in a known interval of the log. Read from time S on, a group with
// T-Early >= S has all of its events and is complete. Other groups are not published,
// because part of their events may lie before S. After T+Late a group does not change
// any more and is removed. Ids are removed once a duplicate of them would be too late
// to count.
package rollup

import (
	"errors"
	"strconv"
	"time"

	"github.com/sluice-go/sluice/stamp"
)

// Early is how long before its group's time an event may be enqueued, because
// clocks differ.
const Early = 5 * time.Minute

// MaxGroups is the limit of groups in a partition.
const MaxGroups = 1_000_000

// ErrTooManyGroups is the error of a group beyond MaxGroups.
var ErrTooManyGroups = errors.New("more than 1000000 groups in memory: use fewer groups, or a shorter late")

// MaxBytes is the limit of the memory that a partition's groups and ids take, about.
const MaxBytes = 512 << 20

// ErrNoMemory is the error of a group or an id for which the process has no memory.
var ErrNoMemory = errors.New("the process has no memory for more groups and ids: raise memory_limit, use fewer groups or shorter values, or a shorter late")

// Account is charged for groups and ids before they are kept.
type Account interface {
	Try(bytes int64) bool // reports whether there is memory for them
	Give(bytes int64)
}

// ErrTooManyBytes is the error of a group or an id beyond MaxBytes.
var ErrTooManyBytes = errors.New("groups and ids take more than 512 MiB of memory: use fewer groups or shorter values, or a shorter late")

// What a group, each of its statistics and a page of ids take besides texts, in bytes.
const (
	groupBytes     = 256
	statisticBytes = 96
	pageBytes      = 224
)

// Event is what counts of an event.
type Event struct {
	Enqueued time.Time
	Sequence int64
	ID       *stamp.CausationID // nil: it cannot be a duplicate
	Parts    []string           // the group's values except its time, without NUL characters
	Time     time.Time          // its group's time
	Values   []*Number          // one for each statistic; nil: the event lacks it
}

// Outcome is the result of [Partition.Add].
type Outcome uint8

const (
	Counted       Outcome = iota
	Duplicate             // an event with its id has been counted
	OutsideWindow         // it was enqueued before T-Early or after T+Late
	Incomplete            // its group is not complete
)

// Group is the statistics of a group, as of an event.
type Group struct {
	Parts  []string
	Time   time.Time
	Values []string // as JSON
	// Version grows with each change of the group: the sequence number of the
	// last event that counted.
	Version int64
}

// Partition holds the groups of one partition. It is used by one goroutine.
type Partition struct {
	functions []Function
	late      time.Duration

	start      time.Time // everything enqueued from here on is read; zero: the whole log
	latest     time.Time // the latest enqueued time so far
	nextExpiry time.Time // when to look for groups and ids to remove
	groups     map[string]*group
	key        []byte // of the last event's group, reused
	changed    []*group
	dedup      dedup
	bytes      int64 // of groups; see MaxBytes
	maxBytes   int64
	account    Account
}

type group struct {
	parts   []string
	time    time.Time
	events  int64
	values  []accumulator
	version int64
	changed bool
}

// New returns the state of a partition that is read from a time on. The zero time
// means that it is read from its very first event.
func New(kinds []Function, late time.Duration, from time.Time) *Partition {
	return &Partition{functions: kinds, late: late, start: from, groups: map[string]*group{}, dedup: dedup{pages: map[pageKey]*page{}}, maxBytes: MaxBytes}
}

// ChargeTo has an account charged for what is kept from now on.
func (m *Partition) ChargeTo(account Account) { m.account = account }

// Release releases the memory charged to the state, which must not be used afterwards.
func (m *Partition) Release() { m.give(m.bytes + m.dedup.bytes) }

// keep charges bytes of a group or an id before they are kept.
func (m *Partition) keep(n int64) error {
	switch {
	case m.bytes+m.dedup.bytes+n > m.maxBytes:
		return ErrTooManyBytes
	case m.account != nil && !m.account.Try(n):
		return ErrNoMemory
	}
	return nil
}

func (m *Partition) give(n int64) {
	if m.account != nil && n > 0 {
		m.account.Give(n)
	}
}

// Groups returns the number of groups in memory.
func (m *Partition) Groups() int { return len(m.groups) }

// Add adds an event, which must be the log's next.
func (m *Partition) Add(e *Event) (Outcome, error) {
	if e.Enqueued.After(m.latest) {
		m.latest = e.Enqueued
	}
	switch {
	case e.Enqueued.Before(e.Time.Add(-Early)), e.Enqueued.After(e.Time.Add(m.late)):
		return OutsideWindow, nil
	case e.Time.Add(-Early).Before(m.start):
		return Incomplete, nil
	}
	if e.ID != nil {
		switch added, err := m.dedup.add(*e.ID, e.Enqueued, m.keep); {
		case err != nil:
			return Incomplete, err
		case !added:
			return Duplicate, nil
		}
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
		size := m.size(string(key))
		if err := m.keep(size); err != nil {
			return Incomplete, err
		}
		m.bytes += size
		g = &group{parts: e.Parts, time: e.Time, values: make([]accumulator, len(m.functions))}
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

// size returns about what a group takes in memory. Its values are in the key and in its
// parts.
func (m *Partition) size(key string) int64 {
	return int64(groupBytes + 2*len(key) + statisticBytes*len(m.functions))
}

// Changed returns the groups that have changed since the last call, in the order in
// which they did. It removes groups and ids that cannot change any more.
func (m *Partition) Changed() []Group {
	list := make([]Group, len(m.changed))
	for i, g := range m.changed {
		g.changed = false
		list[i] = Group{Parts: g.parts, Time: g.time, Version: g.version, Values: make([]string, len(m.functions))}
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

// expireEvery is the time between two removals, by the log's clock.
const expireEvery = time.Minute

// expire removes what cannot change any more. It allows for enqueued times that go
// back by up to Early.
func (m *Partition) expire() {
	before := m.bytes + m.dedup.bytes
	for key, g := range m.groups {
		if g.time.Add(m.late + Early).Before(m.latest) {
			m.bytes -= m.size(key)
			delete(m.groups, key)
		}
	}
	m.dedup.expire(m.latest.Add(-m.late - 2*Early))
	m.give(before - m.bytes - m.dedup.bytes)
}
