//go:build unix

package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgsvg" // svg

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/measure"
)

var (
	ink   = color.RGBA{0x3a, 0x42, 0x4a, 0xff}
	faint = color.RGBA{0xe3, 0xe6, 0xe9, 0xff}
	edge  = color.RGBA{0xb8, 0xbf, 0xc6, 0xff}
	red   = color.RGBA{0xb0, 0x3a, 0x2e, 0xff}
	inks  = []color.RGBA{{0x1f, 0x6f, 0xb5, 0xff}, {0xd9, 0x7a, 0x16, 0xff}, {0x2e, 0x8b, 0x57, 0xff}}
)

// curve is a line of a panel.
type curve struct {
	name   string
	points plotter.XYs
	dashed bool // a bound
}

// panel is a diagram over time.
type panel struct {
	title  string
	log    bool
	curves []curve
	marks  []mark
}

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

// drawPanels draws panels one below the other, as SVG.
func drawPanels(w io.Writer, panels ...panel) error {
	canvas, err := draw.NewFormattedCanvas(10*vg.Inch, vg.Length(len(panels))*2.8*vg.Inch, "svg")
	if err != nil {
		return err
	}
	var rows [][]*plot.Plot
	for _, p := range panels {
		drawn, err := p.plot()
		if err != nil {
			return fmt.Errorf("draw %q: %w", p.title, err)
		}
		rows = append(rows, []*plot.Plot{drawn})
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: vg.Points(10), PadBottom: vg.Points(8), PadLeft: vg.Points(10), PadRight: vg.Points(18), PadY: vg.Points(14)}
	for i, at := range plot.Align(rows, tiles, draw.New(canvas)) {
		rows[i][0].Draw(at[0])
	}
	_, err = canvas.WriteTo(w)
	return err
}

func (d *panel) plot() (*plot.Plot, error) {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Typeface, style.Font.Variant = font.Typeface("Liberation"), "Sans"
		style.Font.Size, style.Color = vg.Points(9), ink
	}
	p.Title.Text, p.Title.TextStyle.Font.Size, p.Title.Padding = d.title, vg.Points(11), vg.Points(12)
	p.X.Tick.Marker = plot.TickerFunc(minuteTicks)
	p.Y.Tick.Marker = plot.TickerFunc(roundTicks)
	if d.log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Padding = edge, edge, vg.Points(3)
	}
	// A browser without the font takes a wider one, which must not run over the lines of the legend.
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, true, 6.8*vg.Inch, vg.Points(24) // beside the title
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	top, bottom := 0.0, 0.0
	for i, c := range d.curves {
		if len(c.points) == 0 {
			return nil, fmt.Errorf("no values of %s", c.name)
		}
		for _, at := range c.points {
			top = max(top, at.Y)
			if bottom == 0 || at.Y < bottom {
				bottom = at.Y
			}
		}
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = inks[i%len(inks)], vg.Points(1.2)
		if c.dashed {
			line.Color, line.Dashes = red, []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	above := 1.15
	if slices.ContainsFunc(d.marks, func(m mark) bool { return m.What != "" }) {
		above = 1.75 // the names of marks begin at the top
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, top*above
	if d.log {
		p.Y.Min, p.Y.Max = bottom/1.5, top*3
	}
	for _, m := range d.marks {
		line, err := plotter.NewLine(plotter.XYs{{X: m.At, Y: p.Y.Min}, {X: m.At, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		line.Color, line.Width, line.Dashes = edge, vg.Points(0.8), []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(line)
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: m.At, Y: p.Y.Max}}, Labels: []string{m.What}})
		if err != nil {
			return nil, err
		}
		style := &label.TextStyle[0]
		style.Font.Typeface, style.Font.Variant, style.Font.Size = font.Typeface("Liberation"), "Sans", vg.Points(7)
		style.Color, style.Rotation, style.XAlign, style.YAlign = ink, -math.Pi/2, text.XLeft, text.YBottom
		label.Offset = vg.Point{X: vg.Points(2), Y: vg.Points(-2)}
		p.Add(label)
	}
	return p, nil
}

// minuteTicks labels seconds as minutes.
func minuteTicks(from, to float64) (ticks []plot.Tick) {
	step := 10.0
	for _, next := range []float64{30, 60, 120, 300, 600, 900, 1800, 3600} {
		if (to-from)/step > 12 {
			step = next
		}
	}
	for at := 0.0; at <= to; at += step {
		if at >= from {
			ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%d:%02d", int(at)/60, int(at)%60)})
		}
	}
	return ticks
}

// roundTicks labels values with k for thousands and M for millions.
func roundTicks(from, to float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(from, to)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

// logTicks labels 1, 10, 100 and so on.
func logTicks(from, to float64) (ticks []plot.Tick) {
	for at := 0.01; at <= to; at *= 10 {
		if at >= from {
			ticks = append(ticks, plot.Tick{Value: at, Label: short(at)})
		}
	}
	return ticks
}

func short(n float64) string {
	switch {
	case n >= 1e6:
		return strconv.FormatFloat(n/1e6, 'g', 4, 64) + "M"
	case n >= 1e3:
		return strconv.FormatFloat(n/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(n, 'g', 4, 64)
}

// mostPoints is how many points a curve has at most.
const mostPoints = 600

// curveOf draws a value of samples over time, without those that are 0; of a long run the median of
// each of at most mostPoints parts.
func curveOf(name string, samples []sample, of func(*sample) float64) curve {
	c := curve{name: name}
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
			c.points = append(c.points, plotter.XY{X: part[len(part)/2].At, Y: measure.Median(values)})
		}
	}
	return c
}

// draw draws the lag over time beside the bound.
func (r *recoveryReport) draw(w io.Writer) error {
	up := r.Marks[len(r.Marks)-1].At
	bound := curve{name: fmt.Sprintf("bound: peak %s/s − input %s/s", short(math.Round(r.highest()/100)*100), short(float64(r.Rate))), dashed: true,
		points: plotter.XYs{{X: up, Y: r.Backlog}, {X: up + r.Bound, Y: 0}}}
	lag := curveOf("lag", r.Samples, (*sample).lag)
	return drawPanels(w, panel{title: "Events published and not committed", curves: []curve{lag, bound}, marks: r.Marks})
}

// draw draws memory and latency over time.
func (r *enduranceReport) draw(w io.Writer) error {
	resident := func(i int) func(*sample) float64 {
		return func(now *sample) float64 { return float64(now.Resident[i]) / 1e6 }
	}
	// Faults strike in turn, so the first of each kind has its name, and in one panel.
	unnamed, named := make([]mark, len(r.Marks)), make([]mark, len(r.Marks))
	for i, m := range r.Marks {
		unnamed[i], named[i] = mark{At: m.At}, mark{At: m.At}
		if !slices.ContainsFunc(named[:i], func(earlier mark) bool { return earlier.What == m.What }) {
			named[i] = m
		}
	}
	return drawPanels(w,
		panel{title: "Resident memory, MB", marks: named, curves: []curve{
			curveOf("never killed", r.Samples, resident(keptConsumer)), curveOf("killed and stopped", r.Samples, resident(struckConsumer))}},
		panel{title: "Published → committed, ms", log: true, marks: unnamed, curves: []curve{
			curveOf("p50", r.Samples, func(now *sample) float64 { return now.P50 }), curveOf("p99", r.Samples, func(now *sample) float64 { return now.P99 })}})
}
