package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// tick is a place on an axis.
type tick struct {
	value           float64
	label, sublabel string
}

// numberTicks returns ticks at multiples of 1, 2 or 5 of a power of ten, at most so many intervals.
func numberTicks(low, high, most float64, whole bool) (ticks []tick) {
	raw := (high - low) / most
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := power
	for _, factor := range []float64{2, 5, 10} {
		if step < raw {
			step = power * factor
		}
	}
	if whole {
		step = max(step, 1)
	}
	const rounding = 1e-9 // 6 * 0.05 is more than 0.3
	for i := int(math.Ceil(low/step - rounding)); float64(i) <= high/step+rounding; i++ {
		at := float64(i) * step
		ticks = append(ticks, tick{value: at, label: Short(at)})
	}
	return ticks
}

// powerTicks returns ticks at powers of ten, and at 2 and 5 times these within little more than
// one.
func powerTicks(low, high float64) (ticks []tick) {
	factors := []float64{1}
	if high/low < 100 {
		factors = []float64{1, 2, 5}
	}
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, factor := range factors {
			if at := power * factor; low <= at && at <= high {
				ticks = append(ticks, tick{value: at, label: Short(at)})
			}
		}
	}
	return ticks
}

// Short abbreviates a number to four digits: 1.5k, 20M.
func Short(v float64) string {
	unit := ""
	for _, u := range []string{"k", "M", "G", "T"} {
		if math.Abs(v) < 999.95 { // which four digits round to 1000
			break
		}
		v, unit = v/1000, u
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + unit
}

const day = 24 * time.Hour

// intervals are the possible distances of ticks of time.
var intervals = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 4 * day, 7 * day, 14 * day, 28 * day, 91 * day, 364 * day,
}

// timeTicks returns ticks at round times, at most so many intervals. The first of a day has the
// date too, and the first of a year the year.
func timeTicks(low, high, most float64, elapsed bool) (ticks []tick) {
	least := (high - low) / most
	last := intervals[len(intervals)-1].Seconds()
	step := last * math.Ceil(least/last)
	for _, d := range intervals {
		if d.Seconds() >= least {
			step = d.Seconds()
			break
		}
	}
	var before time.Time
	for i := math.Ceil(low / step); i*step <= high; i++ {
		t := tick{value: i * step}
		at := time.Unix(int64(t.value), 0).UTC()
		if elapsed {
			t.label = fmt.Sprintf("%d:%02d", int(t.value)/60, int(t.value)%60)
		} else {
			t.label, t.sublabel = dated(at, before, step)
		}
		ticks, before = append(ticks, t), at
	}
	return ticks
}

// dated labels a time, one of ticks that are so many seconds apart, and below it what the one
// before does not say.
func dated(at, before time.Time, step float64) (label, below string) {
	if at.Year() != before.Year() {
		below = at.Format("2006")
	}
	if step >= day.Seconds() {
		return at.Format("2 Jan"), below
	}
	if below != "" || at.YearDay() != before.YearDay() {
		below = strings.TrimSpace(at.Format("2 Jan ") + below)
	}
	if step < 60 {
		return at.Format(time.TimeOnly), below
	}
	return at.Format("15:04"), below
}
