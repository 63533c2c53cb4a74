// Package monitor turns what the engine does into log lines and into figures
// for a person who watches.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/terminal"
)

// Figures are sums over the life of a [Monitor].
type Figures struct {
	Events      int64 // committed, dead letters included
	DeadLetters int64 // parked
	Redriven    int64 // dead letters applied on retry
	Lag         int64 // events that the owned partitions are behind; -1 if not known
	Partitions  int   // owned now
}

// Monitor is a [sluice.Observer].
type Monitor struct {
	log    *slog.Logger
	silent []sluice.Kind
	flood  flood

	mu      sync.Mutex
	sums    Figures
	owned   map[string]int64 // partition → lag, -1 while not known
	stopped map[string]error
}

// New makes a monitor that writes to log: turns of ownership as they happen,
// single batches and renewals at debug level, trouble of one kind a few lines
// at a time. What is silent is only counted.
func New(log *slog.Logger, silent ...sluice.Kind) *Monitor {
	return &Monitor{log: log, silent: silent, owned: map[string]int64{}, stopped: map[string]error{}, flood: flood{log: log}}
}

// Observe counts and logs o.
func (m *Monitor) Observe(o sluice.Observation) {
	m.count(o)
	if slices.Contains(m.silent, o.Kind) {
		return
	}
	level, text := describe(o.Kind)
	if !m.log.Enabled(context.Background(), level) {
		return
	}
	if level > slog.LevelDebug && !m.flood.admits(o.Kind, o.Time) {
		return
	}
	m.log.LogAttrs(context.Background(), level, text, attributes(o)...)
}

func (m *Monitor) count(o sluice.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch o.Kind {
	case sluice.KindAcquired:
		m.owned[o.Partition] = -1
	case sluice.KindLost, sluice.KindReleased:
		delete(m.owned, o.Partition)
		delete(m.stopped, o.Partition)
	case sluice.KindOpened:
		delete(m.stopped, o.Partition)
	case sluice.KindStopped:
		m.stopped[o.Partition] = o.Err
	case sluice.KindCommitted:
		m.sums.Events += int64(o.Events)
		m.behind(o)
	case sluice.KindFetched:
		m.behind(o)
	case sluice.KindParked:
		m.sums.DeadLetters++
	case sluice.KindRedriven:
		m.sums.Redriven++
	}
}

func (m *Monitor) behind(o sluice.Observation) {
	if _, ok := m.owned[o.Partition]; ok && o.Lag >= 0 {
		m.owned[o.Partition] = o.Lag
	}
}

// Figures returns the sums so far.
func (m *Monitor) Figures() Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.sums
	f.Partitions = len(m.owned)
	f.Lag = -1
	for _, lag := range m.owned {
		if lag >= 0 {
			f.Lag = max(f.Lag, 0) + lag
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

// Show keeps screen's status line up to date until ctx ends; without a
// terminal it logs the figures every five seconds.
func (m *Monitor) Show(ctx context.Context, screen *terminal.Screen) {
	began := time.Now()
	var speed terminal.Speed
	speed.At(began, m.Figures().Events)
	screen.Follow(ctx, func() string {
		f, now := m.Figures(), time.Now()
		return line(f, speed.At(now, f.Events), now.Sub(began))
	}, func() {
		f := m.Figures()
		m.log.Info("progress", "events", f.Events, "per_second", speed.At(time.Now(), f.Events), "lag", known(f.Lag),
			"dead_letters", f.DeadLetters, "partitions", f.Partitions)
	})
}

func line(f Figures, rate int64, running time.Duration) string {
	lag := "?"
	if f.Lag >= 0 {
		lag = terminal.Count(f.Lag)
	}
	text := fmt.Sprintf("%s  %s/s  lag %s  %s  %s",
		terminal.Plural(f.Events, "event", "events"), terminal.Count(rate), lag,
		terminal.Plural(f.DeadLetters, "dead letter", "dead letters"), terminal.Plural(f.Partitions, "partition", "partitions"))
	if f.Redriven > 0 {
		text += fmt.Sprintf("  %s redriven", terminal.Count(f.Redriven))
	}
	return text + "  " + running.Truncate(time.Second).String()
}

func known(lag int64) any {
	if lag < 0 {
		return "unknown"
	}
	return lag
}
