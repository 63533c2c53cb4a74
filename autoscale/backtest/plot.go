package backtest

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // png
	_ "gonum.org/v1/plot/vg/vgsvg" // svg

	"github.com/sluice-go/sluice/autoscale"
)

var (
	ink    = color.RGBA{0x3a, 0x42, 0x4a, 0xff}
	faint  = color.RGBA{0xe3, 0xe6, 0xe9, 0xff}
	edge   = color.RGBA{0xb8, 0xbf, 0xc6, 0xff}
	limit  = color.RGBA{0xb0, 0x3a, 0x2e, 0xff}
	inks   = []color.RGBA{{0x1f, 0x6f, 0xb5, 0xff}, {0xd9, 0x7a, 0x16, 0xff}, {0x2e, 0x8b, 0x57, 0xff}, {0x8a, 0x4f, 0xa3, 0xff}, {0x5f, 0x6b, 0x76, 0xff}}
	width  = 10 * vg.Inch
	height = 6 * vg.Inch
	dashes = []vg.Length{vg.Points(4), vg.Points(3)}
)

// MaxPlotted is how many results a plot can show.
const MaxPlotted = 5

// Plot draws results over time, in the format "svg" or "png": above, the backlog,
// with the rule's thresholds if there is one result; below, the instances with the
// decisions. Several results differ by colour and by name.
func Plot(w io.Writer, format string, results ...*Result) error {
	if len(results) == 0 || len(results) > MaxPlotted {
		return fmt.Errorf("plot of %d results: must be 1 to %d", len(results), MaxPlotted)
	}
	backlog, err := backlogPanel(results)
	if err != nil {
		return fmt.Errorf("plot backlog: %w", err)
	}
	instances, err := instancesPanel(results)
	if err != nil {
		return fmt.Errorf("plot instances: %w", err)
	}
	canvas, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	whole := draw.New(canvas)
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: vg.Points(10), PadBottom: vg.Points(8), PadLeft: vg.Points(10), PadRight: vg.Points(18), PadY: vg.Points(16)}
	panels := plot.Align([][]*plot.Plot{{backlog}, {instances}}, tiles, whole)
	backlog.Draw(panels[0][0])
	instances.Draw(panels[1][0])
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}

// panel returns an empty half of the plot, over the time of the results.
func panel(title string, results []*Result) (*plot.Plot, error) {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Typeface, style.Font.Variant = font.Typeface("Liberation"), "Sans"
		style.Font.Size, style.Color = vg.Points(9), ink
	}
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(12)
	p.Title.Padding = vg.Points(6)
	p.X.Min, p.X.Max = math.Inf(1), math.Inf(-1)
	for _, r := range results {
		if len(r.Steps) < 2 {
			return nil, errors.New("fewer than two readings")
		}
		p.X.Min = min(p.X.Min, seconds(r.Steps[0].Time))
		p.X.Max = max(p.X.Max, seconds(r.Steps[len(r.Steps)-1].Time))
	}
	p.X.Tick.Marker = plot.TickerFunc(timeTicks)
	p.Y.Tick.Marker = plot.TickerFunc(countTicks)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = edge, edge
		axis.Padding = vg.Points(4)
	}
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.Padding = vg.Points(2)
	p.Legend.YOffs = vg.Points(18)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	return p, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func backlogPanel(results []*Result) (*plot.Plot, error) {
	p, err := panel("Backlog", results)
	if err != nil {
		return nil, err
	}
	if name := results[0].Backlog; name != "" && name != "backlog" {
		p.Title.Text = "Backlog: " + name
	}
	top := 0.0
	for i, r := range results {
		path := make(plotter.XYs, len(r.Steps))
		for j, s := range r.Steps {
			path[j] = plotter.XY{X: seconds(s.Time), Y: s.Backlog}
			top = max(top, s.Backlog)
		}
		line, err := plotter.NewLine(path)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = inks[i], vg.Points(1.3)
		if len(results) == 1 {
			line.FillColor = color.RGBA{0xe4, 0xee, 0xf7, 0xff}
		} else {
			p.Legend.Add(r.Name, line)
		}
		p.Add(line)
	}
	if len(results) == 1 {
		for _, t := range results[0].Thresholds {
			if err := threshold(p, t); err != nil {
				return nil, err
			}
			top = max(top, t)
		}
	}
	p.Y.Min, p.Y.Max = 0, max(top*1.08, 1)
	return p, nil
}

// threshold draws a threshold of the rule.
func threshold(p *plot.Plot, at float64) error {
	line, err := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: at}, {X: p.X.Max, Y: at}})
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = limit, vg.Points(0.8), dashes
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: p.X.Max, Y: at}}, Labels: []string{autoscale.FormatNumber(at)}})
	if err != nil {
		return err
	}
	style := &label.TextStyle[0]
	style.Color, style.XAlign, style.YAlign = limit, text.XRight, text.YBottom
	style.Font.Typeface, style.Font.Variant, style.Font.Size = font.Typeface("Liberation"), "Sans", vg.Points(8)
	label.Offset = vg.Point{Y: vg.Points(2)}
	p.Add(line, label)
	return nil
}

func instancesPanel(results []*Result) (*plot.Plot, error) {
	p, err := panel("Instances", results)
	if err != nil {
		return nil, err
	}
	most, decided := 1, 0
	for i, r := range results {
		path := make(plotter.XYs, len(r.Steps))
		for j, s := range r.Steps {
			path[j] = plotter.XY{X: seconds(s.Time), Y: float64(s.Instances)}
			most = max(most, s.Instances)
		}
		line, err := plotter.NewLine(path)
		if err != nil {
			return nil, err
		}
		line.StepStyle, line.Color, line.Width = plotter.PostStep, inks[i], vg.Points(1.6)
		p.Add(line)
		decided += r.Actions
	}
	if len(results) == 1 && decided <= maxMarks {
		if err := decisions(p, results[0]); err != nil {
			return nil, err
		}
	}
	p.Y.Min, p.Y.Max = 0, float64(most)*1.15
	return p, nil
}

// maxMarks is how many decisions are marked; more would hide the line.
const maxMarks = 300

// decisions marks each change where it was decided.
func decisions(p *plot.Plot, r *Result) error {
	for _, kind := range []autoscale.RecordKind{autoscale.Up, autoscale.Down} {
		var marks plotter.XYs
		for _, d := range r.Decisions {
			if d.Kind == kind {
				marks = append(marks, plotter.XY{X: seconds(d.Time), Y: float64(d.Wanted)})
			}
		}
		if len(marks) == 0 {
			continue
		}
		points, err := plotter.NewScatter(marks)
		if err != nil {
			return err
		}
		points.GlyphStyle = draw.GlyphStyle{Color: inks[2], Radius: vg.Points(3.2), Shape: draw.PyramidGlyph{}}
		if kind == autoscale.Down {
			points.GlyphStyle = draw.GlyphStyle{Color: inks[1], Radius: vg.Points(3.2), Shape: downGlyph{}}
		}
		p.Add(points)
		p.Legend.Add(string(kind), points)
	}
	return nil
}

// downGlyph is a triangle on its point.
type downGlyph struct{}

// DrawGlyph implements [draw.GlyphDrawer].
func (downGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: vg.Points(0.5)})
	r := style.Radius
	var path vg.Path
	path.Move(vg.Point{X: at.X, Y: at.Y - r})
	path.Line(vg.Point{X: at.X + r*0.87, Y: at.Y + r*0.5})
	path.Line(vg.Point{X: at.X - r*0.87, Y: at.Y + r*0.5})
	path.Close()
	c.SetColor(style.Color)
	c.Fill(path)
}

// steps are the possible distances of ticks of time.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour,
}

// timeTicks returns up to a dozen ticks at round times in UTC; the first of a day
// has the date.
func timeTicks(low, high float64) []plot.Tick {
	step := steps[len(steps)-1]
	for _, s := range steps {
		if (high-low)/s.Seconds() <= 12 {
			step = s
			break
		}
	}
	layout := "15:04"
	if step < time.Minute {
		layout = "15:04:05"
	}
	var ticks []plot.Tick
	day := ""
	for t := math.Ceil(low/step.Seconds()) * step.Seconds(); t <= high && len(ticks) < 100; t += step.Seconds() {
		at := time.Unix(int64(t), 0).UTC()
		label := at.Format(layout)
		if d := at.Format("2 Jan"); d != day {
			day = d
			label = d + "\n" + label
			if step >= 24*time.Hour {
				label = d
			}
		}
		ticks = append(ticks, plot.Tick{Value: t, Label: label})
	}
	return ticks
}

// countTicks returns up to seven ticks at round numbers; large ones are abbreviated:
// 20k, 1.5M.
func countTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/6)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*factor) <= 6 {
			step *= factor
			break
		}
	}
	step = max(step, 1)
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		label := autoscale.FormatNumber(v)
		switch {
		case v >= 1e6:
			label = fmt.Sprintf("%gM", v/1e6)
		case v >= 1e4:
			label = fmt.Sprintf("%gk", v/1e3)
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}
