package main

import (
	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/backtest"
	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
)

// asResult makes of a log what can be drawn.
func asResult(log []autoscale.Record) *backtest.Result {
	r := &backtest.Result{Backlog: demo.LagMetric, Thresholds: []float64{demo.UpperLag, demo.LowerLag}}
	lag := 0.0
	for _, d := range log {
		if d.Kind == autoscale.Up || d.Kind == autoscale.Down {
			r.Rule, r.Decisions = d.Rule, append(r.Decisions, d)
		}
		for _, f := range d.Stats {
			if f.Metric == demo.LagMetric {
				lag = f.Last
			}
		}
		r.Steps = append(r.Steps, backtest.Step{Time: d.Time, Backlog: lag, Instances: d.Instances})
	}
	return r
}
