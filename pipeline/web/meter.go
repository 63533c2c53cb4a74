package web

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// span is how far back a [Meter] remembers, second by second.
const span = 15 * time.Minute

const seconds = int64(span / time.Second)

// Meter is a [driver.Observer] that keeps what the dashboard shows of a consumer:
// totals, the last quarter of an hour by seconds, and the state of each partition
// of this process. Its memory is bounded by the number of partitions.
type Meter struct {
	began time.Time // with its monotonic reading: seconds are counted from here
	state *partitionstate.Tracker

	mu          sync.Mutex
	atLeastOnce bool // records are counted as they are written, not by checkpoint

	now    int64 // the second that is being filled, counted from began
	ring   [seconds]sample
	events journal
}

// sample is one second.
type sample struct {
	Done        int64 // events committed, or records written
	Bytes       int64 // fetched
	DeadLetters int64 // parked
	Retries     int64
	Cost        float64 // RU
	Lag         int64   // at the end of the second
	InFlight    int64   // likewise
	Commits     int64
	Took        time.Duration // by all commits
	Longest     time.Duration // of them
}

// NewMeter makes a meter. It serves one consumer.
func NewMeter() *Meter {
	return &Meter{began: time.Now(), state: partitionstate.New(nil)}
}

// Observe implements [driver.Observer].
func (m *Meter) Observe(o driver.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := m.advance(now)
	m.events.note(o, now)
	m.state.Observe(o)
	switch o.Kind {
	case driver.KindParked:
		s.DeadLetters++
	case driver.KindRetried:
		s.Retries++
	case driver.KindFetched:
		s.Bytes += int64(o.Bytes)
	case driver.KindCommitted:
		s.Commits++
		s.Took += o.Duration
		s.Longest = max(s.Longest, o.Duration)
		if !m.atLeastOnce {
			s.Done += int64(o.Events)
		}
	case driver.KindWritten:
		m.atLeastOnce = true
		s.Done += int64(o.Events)
		s.Cost += o.Cost
	}
}

func (m *Meter) second(now time.Time) int64 { return int64(now.Sub(m.began) / time.Second) }

// advance closes the seconds that are over, and returns the one being filled.
func (m *Meter) advance(now time.Time) *sample {
	second := m.second(now)
	if second == m.now {
		return &m.ring[m.now%seconds]
	}
	totals := m.state.Totals()
	m.now = max(m.now, second-seconds) // all that is older has passed
	for m.now < second {
		s := &m.ring[m.now%seconds]
		s.Lag, s.InFlight = max(totals.Lag, 0), int64(totals.InFlight)
		m.now++
		m.ring[m.now%seconds] = sample{}
	}
	return &m.ring[m.now%seconds]
}

// past returns the newest n whole seconds, oldest first, and when the first of
// them began.
func (m *Meter) past(n int64) ([]sample, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(time.Now())
	n = min(n, m.now, seconds-1)
	list := make([]sample, 0, n)
	for at := m.now - n; at < m.now; at++ {
		list = append(list, m.ring[at%seconds])
	}
	return list, m.began.Add(time.Duration(m.now-n) * time.Second)
}

// meterStats are what a page shows of a meter at once.
type meterStats struct {
	partitionstate.State // its partitions are those that are held
	events               []journalEntry
}

func (m *Meter) stats() meterStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := meterStats{State: m.state.State(), events: m.events.list()}
	maps.DeleteFunc(s.Partitions, func(_ string, p partitionstate.Partition) bool { return !p.Held })
	return s
}

// reason is an error's text, bounded.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error(), 400)
}

// cut shortens a text to about n bytes, between characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
