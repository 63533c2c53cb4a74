// Package progress turns what the engine does into log lines and a status line.
package progress

import (
	"log/slog"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

// Monitor is a [driver.Observer].
type Monitor struct {
	log    *slog.Logger
	silent []driver.ObservationKind
	lines  driver.Observer
	state  *partitionstate.Tracker
}

// New makes a monitor that writes to log what [sluice.LogObserver] writes.
// Observations of the silent kinds are only counted.
func New(log *slog.Logger, silent ...driver.ObservationKind) *Monitor {
	return &Monitor{log: log, silent: silent, lines: sluice.LogObserver(log), state: partitionstate.New(nil)}
}

// Observe implements [driver.Observer].
func (m *Monitor) Observe(o driver.Observation) {
	m.state.Observe(o)
	if !slices.Contains(m.silent, o.Kind) {
		m.lines.Observe(o)
	}
}

// Stats returns the totals so far.
func (m *Monitor) Stats() partitionstate.Totals { return m.state.Totals() }

// Stopped returns the partitions that are halted until an operator acts, and why.
func (m *Monitor) Stopped() map[string]error {
	stopped := map[string]error{}
	for id, p := range m.state.State().Partitions {
		if p.Stopped != nil {
			stopped[id] = p.Stopped
		}
	}
	return stopped
}
