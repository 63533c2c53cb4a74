// Package chart draws line charts over time as SVG that is readable on light and
// on dark pages: panels one below the other, with the same width and margins.
package chart

import (
	"fmt"
	"io"
	"strings"
)

// Color is one of the palette's. Color(i) is that of the i-th of up to [Distinct] series.
type Color int

// The palette.
const (
	Blue Color = iota
	Orange
	Green
	Purple
	Gray
	Red
	Pale // blue of less weight

	Distinct = 5
)

// Shape is how a series is drawn.
type Shape int

// The shapes.
const (
	Line Shape = iota
	Steps
	Dots
	Up   // triangles
	Down // triangles on their points
)

// Point is a time in seconds and a value.
type Point struct{ X, Y float64 }

// Series are points in the order of their times.
type Series struct {
	Name   string // in the legend; "": not there
	Points []Point
	Color  Color
	Shape  Shape
	Dashed bool
	Filled bool // down to the axis
}

// Rule is a dashed line across a panel, at a value or at a time.
type Rule struct {
	Value float64
	Name  string
	Color Color
}

// Panel is a diagram. Its vertical axis begins at 0, or at the least value if that is below; a
// logarithmic one begins a little below the least value.
type Panel struct {
	Title   string
	Height  float64 // of the part within the axes, in pixels
	Elapsed bool    // X is the time since the start, shown as minutes and seconds; else Unix time, shown in UTC
	Log     bool    // the vertical axis is logarithmic
	Whole   bool    // the values are counts: no ticks between whole numbers
	Top     float64 // where the vertical axis ends at least
	Series  []Series
	Levels  []Rule // at values
	Marks   []Rule // at times
}

// style has the colours. Everything is drawn in the current one.
const style = `<style>
.chart{color:#24292f;font:12px system-ui,sans-serif}.chart text{fill:currentColor}.chart .title{font-size:14px;font-weight:600}
.chart .page{color:#fff}.chart .soft{color:#57606a}.chart .grid{color:#e4e7eb}.chart .axis{color:#b1b8c0}
.chart .c0{color:#1f6fb5}.chart .c1{color:#c96a10}.chart .c2{color:#2a8552}.chart .c3{color:#8a4fa3}.chart .c4{color:#5f6b76}.chart .c5{color:#b83a2e}.chart .c6{color:#a9c8e4}
@media (prefers-color-scheme:dark){.chart{color:#e6e9ec}
.chart .page{color:#15191d}.chart .soft{color:#a3acb5}.chart .grid{color:#2a3037}.chart .axis{color:#59636d}
.chart .c0{color:#5aa9ee}.chart .c1{color:#f0a04b}.chart .c2{color:#4cc38a}.chart .c3{color:#c08ad8}.chart .c4{color:#9aa5b0}.chart .c5{color:#ff7b6e}.chart .c6{color:#2f5a80}}
</style>
`

// Draw writes the panels as an SVG element, a complete SVG file.
func Draw(w io.Writer, panels ...Panel) error {
	frames := make([]*frame, len(panels))
	titles := make([]string, len(panels))
	left := 48.0 // half of a date
	for i := range panels {
		f, err := newFrame(&panels[i])
		if err != nil {
			return fmt.Errorf("draw %q: %w", panels[i].Title, err)
		}
		for _, t := range f.yTicks {
			left = max(left, 2*pad+wide(t.label))
		}
		frames[i], titles[i] = f, f.title
	}
	height := pad
	for _, f := range frames {
		height = f.place(left, height) + pad
	}
	var c canvas
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="%v" height="%v" viewBox="0 0 %v %v" role="img">`, width, height, width, height)
	c.add("<title>%s</title>\n%s", escaped(strings.Join(titles, "; ")), style)
	c.add(`<rect class="page" width="%v" height="%v" fill="currentColor"/>`, width, height)
	for _, f := range frames {
		f.draw(&c)
	}
	c.add("</svg>")
	_, err := c.WriteTo(w)
	return err
}
