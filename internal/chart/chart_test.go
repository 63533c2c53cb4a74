package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func drawn(t *testing.T, panels ...Panel) string {
	t.Helper()
	var b bytes.Buffer
	if err := Draw(&b, panels...); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	}
}

// TestDraw draws one panel with everything, and looks for where it is.
func TestDraw(t *testing.T) {
	at := float64(time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC).Unix())
	points := []Point{{at, 0}, {at + 1800, 50}, {at + 3600, 100}}
	svg := drawn(t, Panel{
		Title: "a < b\x00", Height: 100, Top: 125,
		Series: []Series{
			{Name: "line", Points: points, Filled: true}, {Name: "steps", Points: points, Color: Orange, Shape: Steps, Dashed: true},
			{Name: "up", Points: points[1:2], Color: Green, Shape: Up}, {Points: points[:1], Shape: Dots, Color: Pale},
		},
		Levels: []Rule{{Value: 75, Name: "limit", Color: Red}},
		Marks:  []Rule{{Value: at + 900, Color: Gray}},
	})
	// The axes are 888 pixels wide from 44 on and 100 high from 52 on; the values end at 135.
	for _, want := range []string{
		">a &lt; b<", ">line<", ">steps<", ">up<", ">limit<", ">08:00<", ">31 Jan 2026<", ">09:00<", ">100<",
		`fill-opacity="0.12" d="M49.0 152.0L490.5 115.0L932.0 77.9L932.0 152.0H49.0Z"`,
		`stroke-dasharray="6 4" d="M49.0 152.0H490.5V115.0H932.0V77.9"`,
		`class="c2" fill="currentColor" d="M490.5 115.0m0-5`, `class="c6" fill="currentColor" d="M49.0 152.0m-3 0a3`,
		`class="c5" stroke="currentColor" fill="none" stroke-dasharray="5 4" d="M49.0 96.4L932.0 96.4"`,
		`class="c4" stroke="currentColor" fill="none" stroke-dasharray="3 3" d="M269.8 52.0L269.8 152.0"`,
		"prefers-color-scheme:dark",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("%s is not in", want)
		}
	}
	if t.Failed() {
		t.Log(svg)
	}
}

// TestPanelsShareMargins: the widest label of a panel decides for all.
func TestPanelsShareMargins(t *testing.T) {
	panel := func(top float64) Panel {
		return Panel{Height: 100, Whole: true, Elapsed: true, Series: []Series{{Points: []Point{{0, 0}, {60, top}}}}}
	}
	const axis = `class="axis" stroke="currentColor" fill="none" d="M%.1f `
	for _, c := range []struct {
		panels []Panel
		left   float64
	}{{[]Panel{panel(7)}, 48}, {[]Panel{panel(7), panel(1500)}, 56}} {
		if svg := drawn(t, c.panels...); strings.Count(svg, fmt.Sprintf(axis, c.left)) != len(c.panels) {
			t.Errorf("want %d panels that begin at %v:\n%s", len(c.panels), c.left, svg)
		}
	}
}

// TestLegend: one that has no room beside the title goes below it, in as many rows as it needs, and
// long names are cut.
func TestLegend(t *testing.T) {
	points := []Point{{0, 1}, {60, 1}}
	for _, c := range []struct {
		names []string
		rows  float64
	}{
		{[]string{""}, 0}, {[]string{"p50", "p99"}, 0}, {[]string{strings.Repeat("a", 60), strings.Repeat("b", 55)}, 1},
		{[]string{strings.Repeat("a", 300), strings.Repeat("b", 300), "c"}, 2},
	} {
		p := Panel{Title: "Title", Height: 100, Elapsed: true}
		for _, name := range c.names {
			p.Series = append(p.Series, Series{Name: name, Points: points})
		}
		f, err := newFrame(&p)
		if err != nil {
			t.Fatal(err)
		}
		f.place(40, 0)
		if f.top != head+c.rows*row {
			t.Errorf("%d names take %v rows, want %v", len(c.names), (f.top-head)/row, c.rows)
		}
		for _, e := range f.legend {
			if end := e.x + e.width() - pad; e.x < f.left || end > f.right {
				t.Errorf("%s is from %v to %v, beyond %v and %v", e.name, e.x, end, f.left, f.right)
			}
		}
	}
}

func TestDrawRefuses(t *testing.T) {
	for want, p := range map[string]Panel{
		`draw "x": there are no values`:                                            {},
		`draw "x": there are no values of "lag"`:                                   {Series: []Series{{Name: "lag"}}},
		`draw "x": values of NaN to NaN at 0 to 0 s have no place on the axes`:     {Series: []Series{{Points: []Point{{0, math.NaN()}}}}},
		`draw "x": values of +Inf to +Inf at 0 to 0 s have no place on the axes`:   {Series: []Series{{Points: []Point{{0, math.Inf(1)}}}}},
		`draw "x": values of 0 to 1 at 1e+18 to 1e+18 s have no place on the axes`: {Series: []Series{{Points: []Point{{1e18, 1}, {1e18, 0}}}}},
		`draw "x": values of 0 to 5 at 0 to 1 s have no place on the axes`:         {Log: true, Series: []Series{{Points: []Point{{0, 5}, {1, 0}}}}},
		`draw "x": values of 1e-320 to 1 at 0 to 1 s have no place on the axes`:    {Log: true, Series: []Series{{Points: []Point{{0, 1}, {1, 1e-320}}}}},
		`draw "x": values of 0 to 1 at 0 to +Inf s have no place on the axes`:      {Series: []Series{{Points: []Point{{0, 1}, {0, 0}}}}, Marks: []Rule{{Value: math.Inf(1)}}},
		`draw "x": values of -Inf to 1 at 0 to 0 s have no place on the axes`:      {Series: []Series{{Points: []Point{{0, 1}}}}, Levels: []Rule{{Value: math.Inf(-1)}}},
	} {
		p.Title = "x"
		if err := Draw(io.Discard, p); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestElapsedBeginsAtTheStart: also where nothing is later.
func TestElapsedBeginsAtTheStart(t *testing.T) {
	svg := drawn(t, Panel{Height: 50, Elapsed: true, Series: []Series{{Points: []Point{{0, 1}}}}})
	if !strings.Contains(svg, ">0:00<") || !strings.Contains(svg, ">1:00<") || strings.Contains(svg, ":-") {
		t.Error(svg)
	}
}

// TestFilledWithoutZero: a logarithmic axis has none, so that the filling ends at the axis.
func TestFilledWithoutZero(t *testing.T) {
	svg := drawn(t, Panel{Height: 50, Log: true, Series: []Series{{Points: []Point{{1e9, 3}, {1e9 + 60, 7}}, Filled: true}}})
	if !strings.Contains(svg, "L932.0 102.0H48.0Z") {
		t.Error(svg)
	}
}

// TestOnePoint: neither axis has a length of its own.
func TestOnePoint(t *testing.T) {
	for _, y := range []float64{0, 7, -7} {
		if svg := drawn(t, Panel{Height: 50, Series: []Series{{Points: []Point{{1e9, y}}}}}); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Error(svg)
		}
	}
}
