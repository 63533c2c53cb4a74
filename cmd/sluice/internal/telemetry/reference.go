package telemetry

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxReference limits the size of a reference file, in bytes.
const maxReference = 1 << 20

// ReadReference reads the counts of days from CSV with two columns, day and count. A header is
// allowed. Days begin in zone.
func ReadReference(r io.Reader, zone *time.Location) (map[time.Time]float64, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxReference+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxReference:
		return nil, fmt.Errorf("larger than %d bytes: a reference has one line for each day", maxReference)
	}
	counts := map[time.Time]float64{}
	in := csv.NewReader(bytes.NewReader(text))
	in.FieldsPerRecord = 2
	for row := 1; ; row++ {
		record, err := in.Read()
		if err == io.EOF {
			return counts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", row, err)
		}
		day, err := time.ParseInLocation(time.DateOnly, record[0], zone)
		count, numberErr := strconv.ParseFloat(strings.TrimSpace(record[1]), 64)
		switch {
		case row == 1 && err != nil && numberErr != nil: // a header
		case err != nil:
			return nil, fmt.Errorf("row %d: %q: write a day such as 2026-01-31", row, record[0])
		case numberErr != nil || !(count >= 0 && count < 1e15):
			return nil, fmt.Errorf("row %d: %q is not a count", row, record[1])
		default:
			counts[day] += count
		}
	}
}

const (
	// shortLevel is how often, in an audit, a day falls short of the reference by chance.
	shortLevel = 0.001
	// leastLoss is the loss below which a difference to the reference says
	// nothing: clocks and borders of days differ.
	leastLoss = 0.005
	// borders is by how much a day's sum may differ from the reference's because
	// an event near midnight is another day's there (a standard deviation).
	borders = 0.002
)

// measured is a day beside its reference.
type measured struct {
	*Bin
	wanted   float64 // the reference
	sampling float64 // variance of the sum, relative to wanted, if nothing is lost
}

// part is what part of the reference there is.
func (m measured) part() float64 { return m.Weighted / m.wanted }

// refer compares the weighted sums with the reference: all days, or those on either side of the
// largest change of the rate.
func (r *Report) refer(days []*Bin, c *Config) {
	list := make([]measured, len(days))
	cut := 0
	for i, d := range days {
		list[i] = measured{Bin: d, wanted: c.Reference[d.Start]}
		if len(r.Changes) > 0 && d.Start.Before(largest(r.Changes).Day) {
			cut = i + 1
		}
	}
	stretches := [][]measured{list[:cut], list[cut:]}
	noise(stretches)
	free, rss := 0, 0.0
	for i, stretch := range stretches {
		stretch = r.shorts(stretch, len(list), c.Tolerance)
		usual, spare := total(stretch).part(), 1-1/float64(len(stretch))
		for _, m := range stretch {
			rss += (m.part()-usual)*(m.part()-usual) - spare*m.sampling
		}
		stretches[i], free = stretch, free+max(len(stretch)-1, 0)
	}
	if free < leastFree {
		return
	}
	spread := max(0, rss/float64(free))
	r.Spread, r.Unseen = math.Sqrt(spread), 0
	for i, stretch := range stretches {
		if len(stretch) == 0 {
			continue
		}
		all, variance := total(stretch), 0.0
		for _, m := range stretch {
			variance += m.wanted * m.wanted * (spread + m.sampling)
		}
		e := ratio{value: all.part(), deviation: math.Sqrt(variance) / all.wanted, free: free, low: 1, high: 1}
		if all.Weighted > 0 {
			e.low, e.high = all.Low/all.Weighted, all.High/all.Weighted
		}
		var day time.Time
		if i > 0 && cut > 0 {
			day = stretch[0].Start
		}
		s := e.step(day, level/2)
		r.Unseen = max(r.Unseen, -s.Low)
		if s.High < 0 && s.Change <= -leastLoss && (!r.Lost || s.Change < r.Step.Change) {
			r.Step, r.Lost = s, true
		}
	}
}

// total sums days up.
func total(list []measured) measured {
	all := measured{Bin: &Bin{}}
	for _, m := range list {
		all.sum(m.Bin)
		all.wanted += m.wanted
	}
	return all
}

// noise sets the sampling variance of the days. A day without items may have been sampled as either
// stretch was.
func noise(stretches [][]measured) {
	before, after := total(stretches[0]), total(stretches[1])
	units := []float64{before.unit() * before.sampled(), after.unit() * after.sampled()}
	for i, stretch := range stretches {
		for j := range stretch {
			unit := units[i]
			if stretch[j].Items == 0 {
				unit = slices.Max(units)
			}
			stretch[j].sampling = unit/stretch[j].wanted + borders*borders
		}
	}
}

// shorts takes out of a stretch the days that fall short by themselves, by the tolerance and by
// more than chance and rounding explain, and than the others do. An audit has so many days.
func (r *Report) shorts(stretch []measured, days int, tolerance float64) (kept []measured) {
	var parts, deviations []float64
	for _, m := range stretch {
		parts = append(parts, m.part())
	}
	usual := median(parts)
	for _, m := range stretch {
		deviations = append(deviations, math.Abs(m.part()-usual)/math.Sqrt(m.sampling))
	}
	few := max(1, median(deviations)*perMedian) * quantile(1-shortLevel/float64(days), manyFree)
	for _, m := range stretch {
		if m.High/m.wanted > 1-tolerance || m.part() > min(usual, 1)-few*math.Sqrt(m.sampling) {
			kept = append(kept, m)
			continue
		}
		r.Short = append(r.Short, Short{m.Start, m.part() - 1})
	}
	return kept
}

const (
	// perMedian is the standard deviation of a normal distribution, by the median of the absolute
	// deviation.
	perMedian = 1.4826
	// manyFree are degrees of freedom of a variance that is known.
	manyFree = 1000
)

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	if n := len(x); n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[len(x)/2]
}
