package telemetry

import (
	"fmt"
	"io"
	"time"

	"github.com/sluice-go/sluice/internal/chart"
)

// Chart is one of the three that show what happened.
type Chart string

// The charts.
const (
	ChartRaw      Chart = "raw"
	ChartRate     Chart = "rate"
	ChartWeighted Chart = "weighted"
)

// Charts are all charts, in the order in which a reader needs them.
var Charts = []Chart{ChartRaw, ChartRate, ChartWeighted}

// Title says what a chart shows.
func (c Chart) Title() string {
	switch c {
	case ChartRaw:
		return "Raw: what was stored"
	case ChartRate:
		return "Sampling rate, %"
	}
	return "Weighted: what it stands for"
}

// Draw writes a chart as SVG. Days left out of the verdict are pale; lines mark the
// days that the verdict names.
func (r *Report) Draw(w io.Writer, c Chart) error {
	out := map[time.Time]bool{}
	for _, l := range r.LeftOut {
		out[l.Day] = true
	}
	line := chart.Series{Color: chart.Pale}
	counted, others := chart.Series{Color: chart.Blue, Shape: chart.Dots}, chart.Series{Color: chart.Pale, Shape: chart.Dots}
	for _, b := range r.Bins {
		at := chart.Point{X: wall(b.Start), Y: c.value(b)}
		line.Points = append(line.Points, at)
		if out[midnightOf(b.Start, b.Start.Location())] {
			others.Points = append(others.Points, at)
		} else {
			counted.Points = append(counted.Points, at)
		}
	}
	p := chart.Panel{Title: c.Title(), Height: 170, Whole: true, Series: []chart.Series{line}}
	for _, dots := range []chart.Series{counted, others} {
		if len(dots.Points) > 0 {
			p.Series = append(p.Series, dots)
		}
	}
	if c == ChartRate {
		p.Top = 100
	}
	for _, day := range r.marks() {
		p.Marks = append(p.Marks, chart.Rule{Value: wall(day), Color: chart.Orange})
	}
	if err := chart.Draw(w, p); err != nil {
		return fmt.Errorf("chart %s: %w", c, err)
	}
	return nil
}

func (c Chart) value(b *Bin) float64 {
	switch c {
	case ChartRaw:
		return b.Raw
	case ChartRate:
		return b.Rate()
	}
	return b.Weighted
}

// marks are the days that the verdict names.
func (r *Report) marks() []time.Time {
	var list []time.Time
	for _, c := range r.Changes {
		list = append(list, c.Day)
	}
	if r.Step != nil && !r.Step.Day.IsZero() {
		list = append(list, r.Step.Day)
	}
	for _, s := range r.Short[:min(len(r.Short), shownShort)] {
		list = append(list, s.Day)
	}
	return list
}

// wall returns the local time as if it were UTC, because charts have no other
// zone.
func wall(t time.Time) float64 {
	_, offset := t.Zone()
	return float64(t.Unix() + int64(offset))
}
