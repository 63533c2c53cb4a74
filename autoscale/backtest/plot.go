package backtest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/chart"
)

// MaxPlotted is how many results a plot can show.
const MaxPlotted = chart.Distinct

// Plot draws results over time, as SVG: above, the backlog, with the rule's
// thresholds if there is one result; below, the instances with the decisions.
// Several results differ by colour and by name.
func Plot(w io.Writer, results ...*Result) error {
	if len(results) == 0 || len(results) > MaxPlotted {
		return fmt.Errorf("plot of %d results: must be 1 to %d", len(results), MaxPlotted)
	}
	for _, r := range results {
		if len(r.Steps) < 2 {
			return errors.New("plot: fewer than two readings")
		}
	}
	if err := chart.Draw(w, backlogPanel(results), instancesPanel(results)); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

const panelHeight = 190

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func backlogPanel(results []*Result) chart.Panel {
	p := chart.Panel{Title: "Backlog", Height: panelHeight, Whole: true}
	if name := results[0].Backlog; name != "" && name != "backlog" {
		p.Title = "Backlog: " + name
	}
	for i, r := range results {
		s := chart.Series{Color: chart.Color(i), Filled: len(results) == 1}
		if len(results) > 1 {
			s.Name = r.Name
		}
		for _, step := range r.Steps {
			s.Points = append(s.Points, chart.Point{X: seconds(step.Time), Y: step.Backlog})
		}
		p.Series = append(p.Series, s)
	}
	if len(results) == 1 {
		for _, t := range results[0].Thresholds {
			p.Levels = append(p.Levels, chart.Rule{Value: t, Name: autoscale.FormatNumber(t), Color: chart.Red})
		}
	}
	return p
}

func instancesPanel(results []*Result) chart.Panel {
	p := chart.Panel{Title: "Instances", Height: panelHeight, Whole: true}
	decided := 0
	for i, r := range results {
		s := chart.Series{Color: chart.Color(i), Shape: chart.Steps}
		for _, step := range r.Steps {
			s.Points = append(s.Points, chart.Point{X: seconds(step.Time), Y: float64(step.Instances)})
		}
		p.Series = append(p.Series, s)
		decided += r.Actions
	}
	if len(results) == 1 && decided <= maxMarks {
		p.Series = append(p.Series, decisions(results[0])...)
	}
	return p
}

// maxMarks is how many decisions are marked; more would hide the line.
const maxMarks = 300

// decisions marks each change where it was decided.
func decisions(r *Result) []chart.Series {
	up := chart.Series{Name: string(autoscale.Up), Color: chart.Green, Shape: chart.Up}
	down := chart.Series{Name: string(autoscale.Down), Color: chart.Orange, Shape: chart.Down}
	for _, d := range r.Decisions {
		at := chart.Point{X: seconds(d.Time), Y: float64(d.Wanted)}
		switch d.Kind {
		case autoscale.Up:
			up.Points = append(up.Points, at)
		case autoscale.Down:
			down.Points = append(down.Points, at)
		}
	}
	return slices.DeleteFunc([]chart.Series{up, down}, func(s chart.Series) bool { return len(s.Points) == 0 })
}
