package chart

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Sizes in pixels. Letters are as wide as those of a wide font: the reader's is not known.
const (
	width, pad          = 960.0, 14.0
	head, row, swatch   = 38.0, 18.0, 18.0
	letter, titleLetter = 7.0, 8.5
	longest             = 80 // runes of a name
)

// frame is a panel with its axes and its place.
type frame struct {
	*Panel
	title                    string
	xMin, xMax, yMin, yMax   float64
	xTicks, yTicks           []tick
	left, right, top, bottom float64 // in pixels
	titleAt                  float64
	legend                   []entry
}

// entry is a series in the legend, and the left end of its line.
type entry struct {
	*Series
	name string
	x, y float64
}

// newFrame finds the ranges of the axes, and the vertical one's ticks, whose labels decide the
// margin.
func newFrame(p *Panel) (*frame, error) {
	f := &frame{Panel: p, title: humanize.Shorten(p.Title, longest), xMin: math.Inf(1), xMax: math.Inf(-1), yMin: math.Inf(1), yMax: p.Top}
	if len(p.Series) == 0 {
		return nil, errors.New("there are no values")
	}
	for _, s := range p.Series {
		if len(s.Points) == 0 {
			return nil, fmt.Errorf("there are no values of %q", s.Name)
		}
		for _, at := range s.Points {
			f.reachX(at.X)
			f.reachY(at.Y)
		}
	}
	above := 1.08
	for _, m := range p.Marks {
		f.reachX(m.Value)
		if m.Name != "" {
			above = 2 // the names of marks begin at the top
		}
	}
	for _, l := range p.Levels {
		f.reachY(l.Value)
	}
	if p.Elapsed {
		f.reachX(0)
	}
	// Beyond these, ticks would be closer than floating point numbers. NaN is refused too.
	if !(f.xMin > -1e12 && f.xMax < 1e12 && f.yMin > -1e100 && f.yMax < 1e100) || p.Log && f.yMin < 1e-100 {
		return nil, fmt.Errorf("values of %v to %v at %v to %v s have no place on the axes", f.yMin, f.yMax, f.xMin, f.xMax)
	}
	if f.xMax == f.xMin {
		f.xMax += 60
		if !p.Elapsed { // which begins at 0
			f.xMin -= 60
		}
	}
	if p.Log {
		f.yMin, f.yMax = f.yMin/1.5, f.yMax*1.5
		f.yTicks = powerTicks(f.yMin, f.yMax)
		return f, nil
	}
	f.reachY(0)
	f.yMax *= above
	if f.yMax == f.yMin {
		f.yMax = 1
	}
	f.yTicks = numberTicks(f.yMin, f.yMax, p.Height/30, p.Whole)
	return f, nil
}

func (f *frame) reachX(v float64) { f.xMin, f.xMax = min(f.xMin, v), max(f.xMax, v) }
func (f *frame) reachY(v float64) { f.yMin, f.yMax = min(f.yMin, v), max(f.yMax, v) }

// place positions the frame at height from, and returns where it ends.
func (f *frame) place(left, from float64) (to float64) {
	f.left, f.right, f.titleAt = left, width-2*pad, from+pad
	f.xTicks = timeTicks(f.xMin, f.xMax, math.Floor((f.right-f.left)/75), f.Elapsed)
	f.top = from + head + f.placeLegend()
	f.bottom = f.top + f.Height
	to = f.bottom + row + 6
	for _, t := range f.xTicks {
		if t.sublabel != "" {
			return to + row
		}
	}
	return to
}

// placeLegend puts the legend to the right of the title, or in rows below it, and returns the
// height of these.
func (f *frame) placeLegend() (height float64) {
	whole := -pad
	for i := range f.Series {
		if s := &f.Series[i]; s.Name != "" {
			e := entry{Series: s, name: humanize.Shorten(s.Name, longest)}
			f.legend = append(f.legend, e)
			whole += e.width()
		}
	}
	x, y := f.right-whole, f.titleAt
	below := x < f.left+titleLetter*float64(utf8.RuneCountInString(f.title))+2*pad
	for i := range f.legend {
		e := &f.legend[i]
		if below && (i == 0 || x+e.width()-pad > f.right) {
			x, y, height = f.left, y+row, height+row
		}
		e.x, e.y = x, y
		x += e.width()
	}
	return height
}

func (e *entry) width() float64 { return swatch + 6 + wide(e.name) + pad }

// wide is the width of a text in pixels.
func wide(text string) float64 { return letter * float64(utf8.RuneCountInString(text)) }

func (f *frame) x(v float64) float64 {
	return f.left + (v-f.xMin)/(f.xMax-f.xMin)*(f.right-f.left)
}

func (f *frame) y(v float64) float64 {
	low, high := f.yMin, f.yMax
	if f.Log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	return f.bottom - (v-low)/(high-low)*(f.bottom-f.top)
}

func (f *frame) draw(c *canvas) {
	c.text(f.left, f.titleAt+4, "title", "start", f.title)
	f.axes(c)
	for i := range f.Series {
		f.series(c, &f.Series[i])
	}
	for _, l := range f.Levels {
		y := f.y(l.Value)
		c.line(f.left, y, f.right, y, l.Color.class(), ` stroke-dasharray="5 4"`)
		c.text(f.right, y-4, l.Color.class(), "end", l.Name)
	}
	for _, m := range f.Marks {
		x := f.x(m.Value)
		c.line(x, f.top, x, f.bottom, m.Color.class(), ` stroke-dasharray="3 3"`)
		if m.Name != "" {
			c.add(`<text class="soft" font-size="10" transform="translate(%.1f %.1f) rotate(90)">%s</text>`, x+4, f.top+2, escaped(m.Name))
		}
	}
	for _, e := range f.legend {
		if glyph := e.Shape.glyph(); glyph != "" {
			c.add(`<path class="%s" fill="currentColor" d="M%.1f %.1f%s"/>`, e.Color.class(), e.x+swatch-6, e.y, glyph)
		} else {
			c.line(e.x, e.y, e.x+swatch, e.y, e.Color.class(), ` stroke-width="2"`+e.dashes())
		}
		c.text(e.x+swatch+6, e.y+4, "", "start", e.name)
	}
}

func (f *frame) axes(c *canvas) {
	for _, t := range f.yTicks {
		y := f.y(t.value)
		c.line(f.left, y, f.right, y, "grid", "")
		c.text(f.left-8, y+4, "soft", "end", t.label)
	}
	for _, t := range f.xTicks {
		x := f.x(t.value)
		c.line(x, f.top, x, f.bottom+5, "grid", "")
		c.text(x, f.bottom+row, "soft", "middle", t.label)
		c.text(x, f.bottom+2*row-2, "soft", "middle", t.sublabel)
	}
	c.line(f.left, f.bottom, f.right, f.bottom, "axis", "")
}

// series draws a line with what is below it, or markers.
func (f *frame) series(c *canvas, s *Series) {
	var path []byte
	glyph := s.Shape.glyph()
	for i, at := range s.Points {
		x, y := f.x(at.X), f.y(at.Y)
		switch {
		case i == 0 || glyph != "":
			path = fmt.Appendf(path, "M%.1f %.1f%s", x, y, glyph)
		case s.Shape == Steps:
			path = fmt.Appendf(path, "H%.1fV%.1f", x, y)
		default:
			path = fmt.Appendf(path, "L%.1f %.1f", x, y)
		}
	}
	if glyph != "" {
		c.add(`<path class="%s" fill="currentColor" d="%s"/>`, s.Color.class(), path)
		return
	}
	if s.Filled {
		last, axis := s.Points[len(s.Points)-1], f.bottom
		if !f.Log { // which has no 0
			axis = f.y(0)
		}
		c.add(`<path class="%s" fill="currentColor" fill-opacity="0.12" d="%sL%.1f %.1fH%.1fZ"/>`, s.Color.class(), path, f.x(last.X), axis, f.x(s.Points[0].X))
	}
	c.add(`<path class="%s" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"%s d="%s"/>`, s.Color.class(), s.dashes(), path)
}
