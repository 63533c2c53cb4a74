package telemetry

import (
	"fmt"
	"image/color"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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

var (
	ink     = color.RGBA{0x52, 0x5c, 0x66, 0xff}
	faint   = color.RGBA{0xdd, 0xe1, 0xe5, 0xff}
	blue    = color.RGBA{0x1f, 0x6f, 0xb5, 0xff}
	pale    = color.RGBA{0xa9, 0xc8, 0xe4, 0xff}
	mark    = color.RGBA{0xd0, 0x5a, 0x1e, 0xff}
	size    = [2]vg.Length{9 * vg.Inch, 2.6 * vg.Inch}
	hairs   = vg.Points(0.75)
	bars    = vg.Points(1.5)
	letters = vg.Points(9)
	margin  = vg.Points(8)
	face    = font.Typeface("Liberation")
)

// Draw writes a chart in one of gonum/plot's formats, "svg" or "png". Days left
// out of the verdict are pale; lines mark the days that the verdict names.
func (r *Report) Draw(w io.Writer, chart Chart, format string) error {
	p := plot.New()
	if format == "svg" {
		p.BackgroundColor = nil // the page's, light or dark
	}
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font.Typeface, style.Font.Variant = face, "Sans"
	}
	p.Title.Text = chart.Title()
	p.Title.TextStyle.Color, p.Title.TextStyle.Font.Size = ink, vg.Points(11)
	p.Title.Padding = vg.Points(6)
	p.X.Tick.Marker = plot.TimeTicks{Format: "2 Jan", Ticker: plot.TickerFunc(dayTicks)}
	p.Y.Tick.Marker = plot.TickerFunc(countTicks)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color = faint, faint, ink
		axis.Tick.Label.Font.Size = letters
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, faint
	p.Add(grid)

	var path plotter.XYs
	for _, b := range r.Bins {
		path = append(path, plotter.XY{X: wall(b.Start), Y: chart.value(b)})
	}
	line, err := plotter.NewLine(path)
	if err != nil {
		return fmt.Errorf("chart %s: %w", chart, err)
	}
	line.Width, line.Color = bars, pale
	p.Add(line)

	out := map[time.Time]bool{}
	for _, l := range r.LeftOut {
		out[l.Day] = true
	}
	top := 0.0
	for _, in := range []bool{true, false} {
		var line plotter.XYs
		for _, b := range r.Bins {
			v := chart.value(b)
			top = max(top, v)
			if out[midnightOf(b.Start, b.Start.Location())] != in {
				line = append(line, plotter.XY{X: wall(b.Start), Y: v})
			}
		}
		points, err := plotter.NewScatter(line)
		if err != nil {
			return fmt.Errorf("chart %s: %w", chart, err)
		}
		points.GlyphStyle = draw.GlyphStyle{Color: blue, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
		if !in {
			points.Color = pale
		}
		p.Add(points)
	}
	p.Y.Min, p.Y.Max = 0, max(top*1.12, 1)
	if chart == ChartRate {
		p.Y.Max = 108
	}
	for _, at := range r.marks() {
		x := wall(at)
		rule, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: p.Y.Max}})
		if err != nil {
			return fmt.Errorf("chart %s: %w", chart, err)
		}
		rule.Color, rule.Width, rule.Dashes = mark, hairs, []vg.Length{vg.Points(3), vg.Points(2)}
		p.Add(rule)
	}
	canvas, err := draw.NewFormattedCanvas(size[0], size[1], format)
	if err != nil {
		return fmt.Errorf("chart %s: %w", chart, err)
	}
	p.Draw(draw.Crop(draw.New(canvas), margin, -2*margin, margin, -margin))
	_, err = canvas.WriteTo(w)
	return err
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

// dayTicks puts ticks on midnights, at most a dozen.
func dayTicks(low, high float64) []plot.Tick {
	const day = 24 * 60 * 60
	every := float64(day)
	for (high-low)/every > 12 {
		every *= 2
	}
	var ticks []plot.Tick
	for t := float64(int64(low/day)+1) * day; t <= high; t += every {
		ticks = append(ticks, plot.Tick{Value: t, Label: "day"})
	}
	return ticks
}

// countTicks abbreviates large numbers: 20k, 1.5M.
func countTicks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label == "" {
			continue
		}
		v := ticks[i].Value
		switch {
		case v >= 1e9:
			ticks[i].Label = fmt.Sprintf("%gG", v/1e9)
		case v >= 1e6:
			ticks[i].Label = fmt.Sprintf("%gM", v/1e6)
		case v >= 1e3:
			ticks[i].Label = fmt.Sprintf("%gk", v/1e3)
		}
	}
	return ticks
}
