//go:build unix

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
	"github.com/sluice-go/sluice/internal/chart"
)

// drawTo writes a drawing to a file, if it has a name.
func drawTo(path string, drawing func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := drawing(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// mostPoints is how many points a curve has at most.
const mostPoints = 600

// curveOf returns a value of samples over time, without those that are 0; of a long run the median
// of each of at most mostPoints parts.
func curveOf(name string, samples []sample, of func(*sample) float64) chart.Series {
	c := chart.Series{Name: name}
	each := (len(samples) + mostPoints - 1) / mostPoints
	for i := 0; i < len(samples); i += each {
		var values []float64
		part := samples[i:min(i+each, len(samples))]
		for j := range part {
			if v := of(&part[j]); v > 0 {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			c.Points = append(c.Points, chart.Point{X: part[len(part)/2].Seconds, Y: measure.Median(values)})
		}
	}
	return c
}

// elapsedPanel draws each series in a colour of its own, over the time since the start.
func elapsedPanel(title string, series ...chart.Series) chart.Panel {
	for i := range series {
		if !series[i].Dashed {
			series[i].Color = chart.Color(i)
		}
	}
	return chart.Panel{Title: title, Height: 190, Elapsed: true, Series: series}
}

// marked adds lines at the marks to a panel. Faults strike in turn, so the first of each kind has
// its name, if they are named.
func marked(p chart.Panel, marks []mark, named bool) chart.Panel {
	for i, m := range marks {
		rule := chart.Rule{Value: m.Seconds, Color: chart.Gray}
		if named && !slices.ContainsFunc(marks[:i], func(earlier mark) bool { return earlier.What == m.What }) {
			rule.Name = m.What
		}
		p.Marks = append(p.Marks, rule)
	}
	return p
}

// draw draws the lag over time beside the bound.
func (r *recoveryReport) draw(w io.Writer) error {
	up := r.Marks[len(r.Marks)-1].Seconds
	bound := chart.Series{
		Name:   fmt.Sprintf("bound: peak %s/s − input %s/s", chart.Short(math.Round(r.highest()/100)*100), chart.Short(float64(r.Rate))),
		Points: []chart.Point{{X: up, Y: r.Backlog}, {X: up + r.Bound, Y: 0}}, Color: chart.Red, Dashed: true,
	}
	lag := elapsedPanel("Events published and not committed", curveOf("lag", r.Samples, (*sample).lag), bound)
	return chart.Draw(w, marked(lag, r.Marks, true))
}

// draw draws memory and latency over time.
func (r *enduranceReport) draw(w io.Writer) error {
	resident := func(i int) func(*sample) float64 {
		return func(now *sample) float64 { return float64(now.Resident[i]) / 1e6 }
	}
	memory := elapsedPanel("Resident memory, MB", curveOf("never killed", r.Samples, resident(keptConsumer)), curveOf("killed and stopped", r.Samples, resident(struckConsumer)))
	latency := elapsedPanel("Published → committed, ms",
		curveOf("p50", r.Samples, func(now *sample) float64 { return now.P50 }), curveOf("p99", r.Samples, func(now *sample) float64 { return now.P99 }))
	latency.Log = true
	return chart.Draw(w, marked(memory, r.Marks, true), marked(latency, r.Marks, false))
}
