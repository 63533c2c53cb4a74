package web

import (
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// Span is how far back a [Meter] remembers, second by second.
const Span = 15 * time.Minute

const seconds = int64(Span / time.Second)

// Meter is a [sluice.Observer] that keeps what the dashboard draws: sums, the
// last quarter of an hour by seconds, and where each partition of this process
// stands. Its memory is bounded by the number of partitions.
type Meter struct {
	began time.Time // with its monotonic reading: seconds are counted from here

	mu        sync.Mutex
	now       int64 // the second that is being filled, counted from began
	ring      [seconds]sample
	sums      sums
	streaming bool // records are counted as they are written, not by checkpoint
	lag       int64
	inFlight  int64
	held      map[string]*standing
	events    journal
}

// sample is one second.
type sample struct {
	Done     int64 // events committed, or records written
	Bytes    int64 // fetched
	Letters  int64 // parked
	Retries  int64
	Cost     float64 // RU
	Lag      int64   // at the end of the second
	InFlight int64   // likewise
	Commits  int64
	Took     time.Duration // by all commits
	Longest  time.Duration // of them
}

// sums are over the life of the process.
type sums struct {
	Done, Letters, Redriven, Retries int64
	Cost                             float64
}

// standing is where a partition of this process stands.
type standing struct {
	epoch    int64
	renewed  time.Time
	position sluice.Position
	lag      int64     // -1 while not known
	told     time.Time // when lag was
	inFlight int64
	speed    speed
	stopped  string // why it can't go on
}

// NewMeter makes a meter. It serves one consumer.
func NewMeter() *Meter {
	return &Meter{began: time.Now(), held: map[string]*standing{}}
}

// Observe implements [sluice.Observer].
func (m *Meter) Observe(o sluice.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := m.advance(now)
	m.events.note(o, now)
	p := m.held[o.Partition]
	switch o.Kind {
	case sluice.KindAcquired:
		m.drop(o.Partition)
		m.held[strings.Clone(o.Partition)] = &standing{epoch: o.Epoch, renewed: now, position: driver.Unset, lag: -1}
	case sluice.KindLost, sluice.KindReleased:
		m.drop(o.Partition)
	case sluice.KindParked:
		s.Letters++
		m.sums.Letters++
	case sluice.KindRetried:
		s.Retries++
		m.sums.Retries++
	case sluice.KindRedriven:
		m.sums.Redriven++
	case sluice.KindFetched:
		s.Bytes += int64(o.Bytes)
	case sluice.KindCommitted:
		s.Commits++
		s.Took += o.Duration
		s.Longest = max(s.Longest, o.Duration)
		if !m.streaming {
			m.done(s, p, o, now)
		}
	case sluice.KindWritten:
		m.streaming = true
		s.Cost += o.Cost
		m.sums.Cost += o.Cost
		m.done(s, p, o, now)
	}
	if p == nil {
		return // another's, or none
	}
	switch o.Kind {
	case sluice.KindRenewed:
		p.renewed = now
	case sluice.KindOpened:
		p.stopped = ""
	case sluice.KindStopped:
		p.stopped = reason(o.Err)
	case sluice.KindClaimed, sluice.KindCommitted:
		p.position = o.To
	case sluice.KindWritten:
		m.inFlight += int64(o.InFlight) - p.inFlight
		p.inFlight = int64(o.InFlight)
	}
	// Where much is in flight, only what is told of the work done says how much
	// remains.
	if o.Lag >= 0 && (o.Kind == sluice.KindWritten || !m.streaming && (o.Kind == sluice.KindFetched || o.Kind == sluice.KindCommitted)) {
		lag := o.Lag
		if o.Kind == sluice.KindFetched { // which is not done yet
			lag += p.undone(o)
		}
		m.lag += lag - max(p.lag, 0)
		p.lag, p.told = lag, now
	}
}

// undone is how many events up to those fetched are not done.
func (p *standing) undone(o sluice.Observation) int64 {
	if p.position.Sequence < driver.Origin.Sequence { // nobody knows where the first is
		return int64(o.Events)
	}
	return max(0, o.To.Sequence-p.position.Sequence)
}

func (m *Meter) done(s *sample, p *standing, o sluice.Observation, now time.Time) {
	s.Done += int64(o.Events)
	m.sums.Done += int64(o.Events)
	if p != nil {
		p.speed.add(m.second(now), int64(o.Events))
	}
}

// drop forgets a partition.
func (m *Meter) drop(partition string) {
	if p := m.held[partition]; p != nil {
		m.lag -= max(p.lag, 0)
		m.inFlight -= p.inFlight
		delete(m.held, partition)
	}
}

func (m *Meter) second(now time.Time) int64 { return int64(now.Sub(m.began) / time.Second) }

// advance closes the seconds that are over, and returns the one being filled.
func (m *Meter) advance(now time.Time) *sample {
	second := m.second(now)
	if second-m.now > seconds { // nobody asked for long: all of it is past
		m.now = second - seconds
	}
	for m.now < second {
		s := &m.ring[m.now%seconds]
		s.Lag, s.InFlight = m.lag, m.inFlight
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

// figures are what a page shows of a meter at once.
type figures struct {
	sums
	streaming bool
	lag       int64 // -1 while not known of any partition
	inFlight  int64
	held      map[string]standing
	rates     map[string]float64
	events    []happening
}

func (m *Meter) figures() figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.advance(now)
	f := figures{
		sums: m.sums, streaming: m.streaming, lag: -1, inFlight: m.inFlight, events: m.events.list(),
		held: make(map[string]standing, len(m.held)), rates: make(map[string]float64, len(m.held)),
	}
	for id, p := range m.held {
		f.held[id] = *p
		f.rates[id] = p.speed.at(m.now)
		if p.lag >= 0 {
			f.lag = m.lag
		}
	}
	return f
}

// reason is an error's text, bounded.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error(), 400)
}

// cut shortens a text to about n bytes, between letters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
