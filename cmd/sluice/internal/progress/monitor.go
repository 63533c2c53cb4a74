// Package progress turns what the engine does into log lines and into figures
// for a person who watches.
package progress

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// Figures are sums over the life of a [Monitor], and where things stand.
type Figures struct {
	Events      int64 // committed, dead letters included
	DeadLetters int64 // parked
	Redriven    int64 // dead letters applied on retry
	Lag         int64 // events that the owned partitions are behind; -1 if not known
	Partitions  int   // owned now

	// What follows is told by the delivery at least once only.
	Streaming bool    // it is that one
	Written   int64   // records
	Retries   int64   // attempts that failed and were repeated
	Cost      float64 // of all attempts, in the store's unit (RU)
	InFlight  int     // events taken and not done
}

// Monitor is a [sluice.Observer].
type Monitor struct {
	log    *slog.Logger
	silent []sluice.ObservationKind
	flood  flood

	mu      sync.Mutex
	sums    Figures
	owned   map[string]*partition
	stopped map[string]error
}

// partition is where an owned partition stands.
type partition struct {
	checkpoint sluice.Position
	lag        int64 // -1 while not known
	inFlight   int
}

// New makes a monitor that writes to log: turns of ownership as they happen,
// single batches and renewals at debug level, trouble of one kind a few lines
// at a time. What is silent is only counted.
func New(log *slog.Logger, silent ...sluice.ObservationKind) *Monitor {
	return &Monitor{log: log, silent: silent, owned: map[string]*partition{}, stopped: map[string]error{}, flood: flood{log: log}}
}

// Observe counts and logs o.
func (m *Monitor) Observe(o sluice.Observation) {
	m.count(o)
	if slices.Contains(m.silent, o.Kind) {
		return
	}
	level, text := describe(o)
	if !m.log.Enabled(context.Background(), level) {
		return
	}
	if level > slog.LevelDebug && !m.flood.admits(text, o.Time) {
		return
	}
	m.log.LogAttrs(context.Background(), level, text, attributes(o)...)
}

func (m *Monitor) count(o sluice.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.owned[o.Partition]
	if p == nil {
		p = &partition{} // another's, or none
	}
	switch o.Kind {
	case sluice.KindAcquired:
		m.owned[o.Partition] = &partition{checkpoint: driver.Unset, lag: -1}
	case sluice.KindLost, sluice.KindReleased:
		delete(m.owned, o.Partition)
		delete(m.stopped, o.Partition)
	case sluice.KindOpened:
		delete(m.stopped, o.Partition)
	case sluice.KindStopped:
		m.stopped[o.Partition] = o.Err
	case sluice.KindClaimed:
		p.checkpoint = o.To
	case sluice.KindCommitted:
		m.sums.Events += int64(o.Events)
		p.checkpoint = o.To
		m.behind(p, o)
	case sluice.KindFetched:
		m.behind(p, o)
	case sluice.KindWritten:
		m.sums.Streaming = true
		m.sums.Written += int64(o.Events)
		m.sums.Cost += o.Cost
		p.inFlight = o.InFlight
		m.behind(p, o)
	case sluice.KindRetried:
		m.sums.Retries++
	case sluice.KindParked:
		m.sums.DeadLetters++
	case sluice.KindRedriven:
		m.sums.Redriven++
	}
}

// behind takes a partition's lag. Where much is in flight, only what is told
// of the work done says how much remains.
func (m *Monitor) behind(p *partition, o sluice.Observation) {
	if o.Lag >= 0 && (o.Kind == sluice.KindWritten || !m.sums.Streaming) {
		p.lag = o.Lag
	}
}

// Figures returns the sums so far.
func (m *Monitor) Figures() Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.sums
	f.Partitions = len(m.owned)
	f.Lag = -1
	for _, p := range m.owned {
		f.InFlight += p.inFlight
		if p.lag >= 0 {
			f.Lag = max(f.Lag, 0) + p.lag
		}
	}
	return f
}

// Stopped returns the partitions that can't go on until a person acts, and
// why.
func (m *Monitor) Stopped() map[string]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.stopped)
}
