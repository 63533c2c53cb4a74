package scale

import (
	"bytes"
	"fmt"
	"math"
)

// baseline are the figures of 1,024 partitions at the revision before these budgets, measured by
// the same test: requests a second to the stores and to the log, with 1, 4, 16 and 64 processes.
var baseline = map[int]struct{ store, rows, info float64 }{
	1: {1162.1, 1059, 74.1}, 4: {1166.5, 4252, 290.3}, 16: {1178.2, 17188, 706.9}, 64: {1238.4, 71949, 2392.7},
}

// draw draws the figures of 1,024 partitions over the number of processes, now and before, on
// logarithmic axes.
func draw(table []rates) []byte {
	const width, height, left, top, plot = 860, 330, 60, 46, 220
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="13" role="img">`+"\n<title>What 1,024 partitions without events ask of stores and log, by processes</title>\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	type point struct {
		n   int
		was float64
		is  float64
	}
	panels := []struct {
		title        string
		budget       float64
		lowest, span float64 // exponents of ten
		value        func(r *rates) point
	}{
		{"requests to the stores a second", 640, 0, 5, func(r *rates) point { return point{r.Processes, baseline[r.Processes].store, r.store()} }},
		{"rows of listings a second", 0, 0, 5, func(r *rates) point { return point{r.Processes, baseline[r.Processes].rows, r.ListedRows} }},
		{"management requests a second", runtimeInfo, 0, 5, func(r *rates) point { return point{r.Processes, baseline[r.Processes].info, r.RuntimeInfo} }},
	}
	for i, p := range panels {
		x0 := float64(left + i*275)
		x := func(n int) float64 { return x0 + 30*math.Log2(float64(n)) }
		y := func(v float64) float64 {
			return top + plot*(1-(math.Log10(max(v, 1))-p.lowest)/p.span)
		}
		fmt.Fprintf(&b, `<text x="%.0f" y="26" fill="#1f2933" font-weight="600">%s</text>`+"\n", x0, p.title)
		for e := 0; e <= int(p.span); e++ {
			v := math.Pow10(e)
			fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#e4e7eb"/>`+"\n", x0, x(64)+10, y(v), y(v))
			fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" text-anchor="end" fill="#616e7c">%s</text>`+"\n", x0-6, y(v)+4, []string{"1", "10", "100", "1k", "10k", "100k"}[e])
		}
		if p.budget > 0 {
			fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#b44d12" stroke-dasharray="5 4"/>`+"\n", x0, x(64)+10, y(p.budget), y(p.budget))
			fmt.Fprintf(&b, `<text x="%.0f" y="%.1f" text-anchor="end" fill="#b44d12" font-size="11">budget at 64: %.0f</text>`+"\n", x(64)+10, y(p.budget)+map[bool]float64{true: 13, false: -4}[p.budget > 100], p.budget)
		}
		var was, is string
		for j := range table {
			if table[j].Partitions != partitions {
				continue
			}
			at := p.value(&table[j])
			was += fmt.Sprintf("%.1f,%.1f ", x(at.n), y(at.was))
			is += fmt.Sprintf("%.1f,%.1f ", x(at.n), y(at.is))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#9aa5b1"/><circle cx="%.1f" cy="%.1f" r="3.5" fill="#0b69a3"/>`+"\n", x(at.n), y(at.was), x(at.n), y(at.is))
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#616e7c">%d</text>`+"\n", x(at.n), top+plot+18, at.n)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#9aa5b1" stroke-width="2"/><polyline points="%s" fill="none" stroke="#0b69a3" stroke-width="2"/>`+"\n", was, is)
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle" fill="#616e7c">processes</text>`+"\n", x(8), top+plot+36)
	}
	fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="#9aa5b1"/><text x="%d" y="%d" fill="#1f2933">before</text>`+"\n", left, height-14, left+10, height-10)
	fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="#0b69a3"/><text x="%d" y="%d" fill="#1f2933">now; 1,024 partitions without events</text>`+"\n</svg>\n", left+80, height-14, left+90, height-10)
	return b.Bytes()
}
