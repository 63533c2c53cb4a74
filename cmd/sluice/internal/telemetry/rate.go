package telemetry

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// RateChange is a day on which the recorded sampling rate changed.
type RateChange struct {
	Day              time.Time
	OldRate, NewRate float64 // rates of the days up to the next change on either side, in percent
	// Came and Went are versions of the SDK that most items had after, but not
	// before, and the other way round. Versions are all that the items after had.
	Came, Went, Versions []string
}

// size is how large a change is, whichever way it goes.
func (c *RateChange) size() float64 { return math.Abs(math.Log(c.NewRate / c.OldRate)) }

// leastChange is how much the rates of days may differ, relatively, before there is a change
// between them. So where no change is reported, all rates are this close.
const leastChange = 0.05

// rateChanges divides the days so that the recorded rates within each part differ by less than
// leastChange. Each part but the first begins with a change. Rates are what the items say, so
// nothing is tested.
func rateChanges(days []*Bin) []RateChange {
	var parts []*Bin
	var low, high float64
	for _, d := range days {
		rate := d.Rate()
		if rate == 0 {
			continue
		}
		low, high = min(low, rate), max(high, rate)
		if len(parts) == 0 || high >= low*(1+leastChange) {
			parts, low, high = append(parts, &Bin{Start: d.Start, SDKs: map[string]int64{}}), rate, rate
		}
		parts[len(parts)-1].join(d)
	}
	var changes []RateChange
	for i := 1; i < len(parts); i++ {
		before, after := parts[i-1], parts[i]
		c := RateChange{Day: after.Start, OldRate: before.Rate(), NewRate: after.Rate()}
		c.Came, c.Went = newcomers(before, after), newcomers(after, before)
		for name := range after.SDKs {
			c.Versions = append(c.Versions, name)
		}
		slices.Sort(c.Versions)
		changes = append(changes, c)
	}
	return changes
}

// largest returns the largest change, the first of several.
func largest(changes []RateChange) RateChange {
	return slices.MaxFunc(changes, func(a, b RateChange) int { return cmp.Compare(a.size(), b.size()) })
}

// newcomers returns the versions that more than half of the items have after a
// change, or a tenth of the items if almost none had them before.
func newcomers(before, after *Bin) []string {
	var list []string
	for name, n := range after.SDKs {
		was := float64(before.SDKs[name]) / float64(max(before.Items, 1))
		is := float64(n) / float64(max(after.Items, 1))
		if is-was > 0.5 || is > 0.1 && was < 0.01 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
