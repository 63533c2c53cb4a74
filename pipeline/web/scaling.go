package web

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"
)

// Scaling is what the dashboard shows of an autoscaler, whichever process it
// runs in.
type Scaling struct {
	Resources []string // their names, in the order in which they are shown
	Store     ScalingStore
}

// ScalingStore reads the state of an autoscaler. It must be safe for concurrent
// use.
type ScalingStore interface {
	// State returns the state of a resource; the zero state for one that the
	// store does not know.
	State(ctx context.Context, resource string) (*ScalingState, error)
	// Decisions returns the newest decisions about a resource since a time, at
	// most limit, oldest first.
	Decisions(ctx context.Context, resource string, since time.Time, limit int) ([]ScalingDecision, error)
}

// ScalingState is the state of a scaled resource.
type ScalingState struct {
	Instances int       // as last reported
	Reported  time.Time // when that was; zero: never
	LastUp    time.Time // when the last scale-up had succeeded; zero: never
	LastDown  time.Time // the same of the last scale-down
	Pending   bool      // an action is under way
	Metrics   map[string]ScalingMetric
}

// ScalingMetric is a metric that decides about a resource.
type ScalingMetric struct {
	Values []ScalingValue // oldest first
	State  string         // of the newest value; empty: it counts
	Cause  string         // why the metric has that state
}

// ScalingValue is one value of a metric.
type ScalingValue struct {
	Time  time.Time
	Value float64
}

// ScalingDecision is one decision, or the outcome of one.
type ScalingDecision struct {
	Sequence  int64 // from 1, consecutive for each resource
	Time      time.Time
	Kind      string
	Instances int    // at that time
	Wanted    int    // decided, within the limits
	Reason    string // one line
	Stats     []ScalingStats
}

// ScalingStats are a metric's statistics at the time of a decision, over its
// window.
type ScalingStats struct {
	Metric  string
	Points  int
	Last    float64
	Average float64
	Min     float64
	Max     float64
	Newest  time.Time // of the value Last; zero: there is none
	Missing string    // why the metric did not count; empty: it did
}

const (
	// decisionsShown are the newest of how far back, and valuesShown the newest
	// of each metric.
	decisionsShown = 200
	decisionsFor   = 24 * time.Hour
	valuesShown    = 1000
)

// resourceJSON is a resource that is scaled.
type resourceJSON struct {
	Name      string         `json:"name"`
	Instances int            `json:"instances"`
	Reported  int64          `json:"reported,omitempty"` // Unix milliseconds, as all times here
	LastUp    int64          `json:"lastUp,omitempty"`
	LastDown  int64          `json:"lastDown,omitempty"`
	Pending   bool           `json:"pending"` // an action is under way
	Metrics   []metricJSON   `json:"metrics"`
	Decisions []decisionJSON `json:"decisions"` // newest first
	Error     string         `json:"error,omitempty"`
}

type metricJSON struct {
	Name   string    `json:"name"`
	Times  []int64   `json:"times"`
	Values []float64 `json:"values"`
	State  string    `json:"state,omitempty"`
	Cause  string    `json:"cause,omitempty"`
}

type decisionJSON struct {
	Sequence  int64       `json:"sequence"`
	Time      int64       `json:"time"`
	Kind      string      `json:"kind"`
	Instances int         `json:"instances"`
	Wanted    int         `json:"wanted"`
	Reason    string      `json:"reason"`
	Figures   []statsJSON `json:"figures,omitempty"`
}

type statsJSON struct {
	Metric  string  `json:"metric"`
	Points  int     `json:"points"`
	Average float64 `json:"average"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Missing string  `json:"missing,omitempty"`
}

func (d *Dashboard) serveScaling(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	list := make([]resourceJSON, len(d.cfg.Scaling.Resources))
	for i, name := range d.cfg.Scaling.Resources {
		list[i] = d.cfg.Scaling.read(ctx, name)
	}
	answer(w, map[string]any{"resources": list, "now": time.Now().UnixMilli()})
}

func (s *Scaling) read(ctx context.Context, name string) resourceJSON {
	out := resourceJSON{Name: name, Metrics: []metricJSON{}, Decisions: []decisionJSON{}}
	state, err := s.Store.State(ctx, name)
	if err != nil {
		out.Error = reason(fmt.Errorf("load the state of %s: %w", name, err))
		return out
	}
	decisions, err := s.Store.Decisions(ctx, name, time.Now().Add(-decisionsFor), decisionsShown)
	if err != nil {
		out.Error = reason(fmt.Errorf("read the decisions of %s: %w", name, err))
	}
	out.Instances, out.Pending = state.Instances, state.Pending
	out.Reported, out.LastUp, out.LastDown = stamp(state.Reported), stamp(state.LastUp), stamp(state.LastDown)
	for name, m := range state.Metrics {
		out.Metrics = append(out.Metrics, metricChart(name, &m, decisions))
	}
	slices.SortFunc(out.Metrics, func(a, b metricJSON) int { return byNumber(a.Name, b.Name) })
	for _, d := range slices.Backward(decisions) {
		out.Decisions = append(out.Decisions, decision(&d))
	}
	return out
}

// metricChart is a metric as far back as the decisions are shown: the newest
// value at each decision, and then all of its window.
func metricChart(name string, of *ScalingMetric, decisions []ScalingDecision) metricJSON {
	m := metricJSON{Name: name, State: of.State, Cause: cut(of.Cause, 400), Times: []int64{}, Values: []float64{}}
	add := func(at time.Time, value float64) {
		if n, ms := len(m.Times), at.UnixMilli(); n == 0 || ms > m.Times[n-1] {
			m.Times, m.Values = append(m.Times, ms), append(m.Values, finite(value))
		}
	}
	values := of.Values[max(0, len(of.Values)-valuesShown):]
	for _, d := range decisions {
		for _, s := range d.Stats {
			if s.Metric == name && !s.Newest.IsZero() && (len(values) == 0 || s.Newest.Before(values[0].Time)) {
				add(s.Newest, s.Last)
			}
		}
	}
	for _, v := range values {
		add(v.Time, v.Value)
	}
	return m
}

func decision(of *ScalingDecision) decisionJSON {
	d := decisionJSON{
		Sequence: of.Sequence, Time: of.Time.UnixMilli(), Kind: of.Kind, Instances: of.Instances, Wanted: of.Wanted, Reason: cut(of.Reason, 1000),
	}
	for _, s := range of.Stats {
		d.Figures = append(d.Figures, statsJSON{
			Metric: s.Metric, Points: s.Points, Average: finite(s.Average), Min: finite(s.Min), Max: finite(s.Max), Missing: cut(s.Missing, 400),
		})
	}
	return d
}

// finite returns 0 for NaN and infinities, which JSON can't hold.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// stamp is a time in Unix milliseconds, 0 for none.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
