package web

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// Scaling is what the dashboard shows of an autoscaler: its state, in whatever
// process it runs.
type Scaling struct {
	Resources []string // their names, in the order in which they are shown
	Store     ScalingStore
}

// ScalingStore is the side of an [autoscale.Store] that is read.
type ScalingStore interface {
	Load(ctx context.Context, resource string) (*autoscale.Memory, error)
	Records(ctx context.Context, resource string, since time.Time, limit int) ([]autoscale.Record, error)
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
	Sequence  int64        `json:"sequence"`
	Time      int64        `json:"time"`
	Kind      string       `json:"kind"`
	Instances int          `json:"instances"`
	Wanted    int          `json:"wanted"`
	Reason    string       `json:"reason"`
	Figures   []figureJSON `json:"figures,omitempty"`
}

type figureJSON struct {
	Metric  string  `json:"metric"`
	Points  int     `json:"points"`
	Average float64 `json:"average"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Missing string  `json:"missing,omitempty"`
}

func (d *Dashboard) serveScaling(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), storeFor)
	defer cancel()
	list := make([]resourceJSON, len(d.cfg.Scaling.Resources))
	for i, name := range d.cfg.Scaling.Resources {
		list[i] = d.cfg.Scaling.read(ctx, name)
	}
	answer(w, map[string]any{"resources": list, "now": time.Now().UnixMilli()})
}

func (s *Scaling) read(ctx context.Context, name string) resourceJSON {
	out := resourceJSON{Name: name, Metrics: []metricJSON{}, Decisions: []decisionJSON{}}
	m, err := s.Store.Load(ctx, name)
	if err != nil {
		out.Error = reason(fmt.Errorf("load the state of %s: %w", name, err))
		return out
	}
	records, err := s.Store.Records(ctx, name, time.Now().Add(-decisionsFor), decisionsShown)
	if err != nil {
		out.Error = reason(fmt.Errorf("read the decisions of %s: %w", name, err))
	}
	out.Instances, out.Pending = m.Instances, m.Pending != nil
	out.Reported, out.LastUp, out.LastDown = stamp(m.Reported), stamp(m.LastUp), stamp(m.LastDown)
	for metric, w := range m.Windows {
		out.Metrics = append(out.Metrics, drawnMetric(metric, w, records))
	}
	slices.SortFunc(out.Metrics, func(a, b metricJSON) int { return byNumber(a.Name, b.Name) })
	for _, r := range slices.Backward(records) {
		out.Decisions = append(out.Decisions, decision(&r))
	}
	return out
}

// drawnMetric is a metric as far back as the decisions are shown: what was the
// newest value at each, and then all of its window.
func drawnMetric(name string, w *autoscale.Window, records []autoscale.Record) metricJSON {
	m := metricJSON{Name: name, State: string(w.State), Cause: cut(w.Cause, 400), Times: []int64{}, Values: []float64{}}
	add := func(at time.Time, value float64) {
		if n, ms := len(m.Times), at.UnixMilli(); n == 0 || ms > m.Times[n-1] {
			m.Times, m.Values = append(m.Times, ms), append(m.Values, finite(value))
		}
	}
	values := w.Values[max(0, len(w.Values)-valuesShown):]
	for _, r := range records {
		for _, f := range r.Figures {
			if f.Metric == name && !f.Newest.IsZero() && (len(values) == 0 || f.Newest.Before(values[0].Time)) {
				add(f.Newest, f.Last)
			}
		}
	}
	for _, v := range values {
		add(v.Time, v.Value)
	}
	return m
}

func decision(r *autoscale.Record) decisionJSON {
	d := decisionJSON{
		Sequence: r.Sequence, Time: r.Time.UnixMilli(), Kind: string(r.Kind), Instances: r.Instances, Wanted: r.Wanted, Reason: cut(r.Reason, 1000),
	}
	for _, f := range r.Figures {
		d.Figures = append(d.Figures, figureJSON{
			Metric: f.Metric, Points: f.Points, Average: finite(f.Average), Min: finite(f.Min), Max: finite(f.Max), Missing: cut(f.Missing, 400),
		})
	}
	return d
}

// finite is 0 for what JSON can't say.
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
