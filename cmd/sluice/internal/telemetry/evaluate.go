package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Verdict is what happened to the events, as far as the telemetry shows.
type Verdict string

// The verdicts.
const (
	Neither   Verdict = "neither"    // the rate is steady, and nothing is lost
	Sampling  Verdict = "sampling"   // the rate changed, and nothing is lost
	Loss      Verdict = "loss"       // the rate is steady, and events are missing
	Both      Verdict = "both"       // the rate changed, and events are missing
	Undecided Verdict = "can't tell" // the days differ too much to exclude a loss that matters
)

// Config holds what has a default. The zero value is ready to use.
type Config struct {
	// Holidays are days, in the series' zone, that take no part in the verdict.
	Holidays []time.Time
	// Reference is how much there was on each day according to a source that
	// doesn't sample, in the units of the measurement, by the day's midnight.
	Reference map[time.Time]float64
	// Tolerance is the least loss that matters: the verdict is Undecided unless
	// one as large can be excluded. Default: 0.05.
	Tolerance float64
}

const (
	// level is the rate of false alarms: how often a loss is found where there is
	// none, and as often a gain.
	level = 0.005
	// outlierLevel is how often a day stands out by chance.
	outlierLevel = 0.01
	// shortLevel is how often a day falls short of the reference by chance.
	shortLevel = 0.001
	// leastSide is how many days a step needs on either side.
	leastSide = 3
	// leastLoss is the loss below which a difference to the reference says
	// nothing: clocks and borders of days differ.
	leastLoss = 0.005
	// borders is by how much a day's sum may differ from the reference's because
	// an event near midnight is another day's there (a standard deviation).
	borders = 0.002
	// noise is the least relative standard deviation of a day that is used: a
	// smaller one is taken for chance.
	noise = 0.0005
	// maxDays bounds the time that a verdict takes: three years.
	maxDays = 1100
)

// LeftOut is a day that takes no part in the verdict.
type LeftOut struct {
	Day time.Time
	Why string
}

// Short is a day that by itself falls short of the reference.
type Short struct {
	Day    time.Time
	Change float64 // relative: -1 is all
}

// Step is a lasting change of the weighted sum.
type Step struct {
	Day       time.Time // the first day of it; zero: all days
	Change    float64   // relative: -0.2 means a fifth less
	Low, High float64   // the 95 % confidence interval of Change
	// WideLow and WideHigh are the 99.5 % interval, for the headline: a step is reported only if it is
	// large, so of those that are reported the 95 % interval is too narrow too often.
	WideLow, WideHigh float64
	P                 float64 // how often a change as large appears by chance, corrected for the days tried
}

// Report is what an audit found.
type Report struct {
	Bins    []*Bin // by time, those without items left out
	Days    []*Bin // the same by days
	Changes []RateChange
	LeftOut []LeftOut
	// Weekdays are the factors that the days of the week have of the mean, from
	// Sunday on; nil if there are too few days, or there is a reference.
	Weekdays []float64
	// Spread is by how much days vary for no known reason, relative (a standard
	// deviation); with a reference, as a multiple of what the sampling explains.
	Spread float64
	// Step is the lasting change seen, nil if there is none.
	Step *Step
	// Short are days that fall short of the reference by themselves.
	Short []Short
	// Beyond is how many days of the reference come after the last item.
	Beyond int
	// Unseen is the largest loss that can't be excluded with 95 % confidence;
	// 1 if nothing can.
	Unseen float64
	// Found is the least loss that is found about nine times in ten in days like
	// these; 1 if none is.
	Found    float64
	Suspect  int64 // items that gave their sampling rate, but itemCount 1
	Drift    bool  // a steady drift explains the days better than a step
	Verdict  Verdict
	Referred bool // a reference was compared with
}

// Evaluate decides whether a series shows sampling, loss, both or neither. It fails if
// the series has no items.
func (s *Series) Evaluate(cfg *Config) (*Report, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Tolerance = cmp.Or(c.Tolerance, 0.05)
	all := s.days()
	if len(all) == 0 {
		return nil, errors.New("no item counts: look at the names of event and measurement")
	}
	r := &Report{Bins: s.Bins(), Referred: c.Reference != nil, Unseen: 1, Found: 1}
	days := r.choose(all, s.zone, &c)
	if len(days) > maxDays {
		return nil, fmt.Errorf("it is of %d days: take %d or fewer at a time", len(days), maxDays)
	}
	for _, d := range r.Days {
		r.Suspect += d.Suspect
	}
	r.Changes = rateChanges(days)
	if c.Reference != nil {
		r.compare(days, &c)
	} else {
		r.seek(days)
	}
	r.Verdict = r.verdict(c.Tolerance)
	return r, nil
}

// choose leaves out the days that would mislead.
func (r *Report) choose(all []*Bin, zone *time.Location, c *Config) (days []*Bin) {
	holiday := map[time.Time]bool{}
	for _, h := range c.Holidays {
		holiday[midnightOf(h, zone)] = true
	}
	first := all[0].Start
	for i, d := range all {
		at := first.AddDate(0, 0, i)
		leave := func(why string) { r.LeftOut = append(r.LeftOut, LeftOut{at, why}) }
		if d == nil {
			if c.Reference[at] > 0 && !holiday[at] {
				r.Short = append(r.Short, Short{at, -1})
			} else {
				leave("no items")
			}
			continue
		}
		r.Days = append(r.Days, d)
		switch {
		case holiday[at]:
			leave("holiday")
		case i == 0 && beginsLate(all):
			leave("begins at " + d.First.In(zone).Format("15:04"))
		case i == len(all)-1 && endsEarly(all):
			leave("ends at " + d.Last.In(zone).Format("15:04"))
		case d.Weighted <= 0 || d.Items <= 0 || d.Weight <= 0:
			leave("its sum is not positive")
		case c.Reference != nil && c.Reference[at] <= 0:
			leave("no reference")
		default:
			days = append(days, d)
		}
	}
	last := first.AddDate(0, 0, len(all)-1)
	for at, count := range c.Reference {
		if at.After(last) && count > 0 {
			r.Beyond++
		}
	}
	return days
}

// slack is how much later than usual a day's items may begin, or earlier end,
// for the day to count as whole.
const slack = 2 * time.Hour

func beginsLate(all []*Bin) bool {
	return usual(all[1:], func(d *Bin) time.Duration { return d.First.Sub(d.Start) })+slack < all[0].First.Sub(all[0].Start)
}

func endsEarly(all []*Bin) bool {
	last := all[len(all)-1]
	return usual(all[:len(all)-1], func(d *Bin) time.Duration { return d.Last.Sub(d.Start) })-slack > last.Last.Sub(last.Start)
}

// usual is the median over the days that have items; 0 without any.
func usual(days []*Bin, of func(*Bin) time.Duration) time.Duration {
	var list []float64
	for _, d := range days {
		if d != nil {
			list = append(list, float64(of(d)))
		}
	}
	return time.Duration(median(list))
}

// verdict weighs what was found.
func (r *Report) verdict(tolerance float64) Verdict {
	changed := len(r.Changes) > 0
	switch {
	case r.Drift:
		return Undecided
	case r.lost() && changed:
		return Both
	case r.lost():
		return Loss
	case r.Unseen >= tolerance || r.Beyond > 0:
		return Undecided
	case changed:
		return Sampling
	}
	return Neither
}

// lost reports whether a loss was found.
func (r *Report) lost() bool {
	return r.Step != nil && r.Step.Change < 0 || len(r.Short) > 0
}

// relative turns a difference of logarithms into a relative change.
func relative(d float64) float64 { return math.Expm1(d) }
