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
	Neither   Verdict = "neither"    // the recorded rate is the same, and nothing is lost
	Sampling  Verdict = "sampling"   // the rate changed, and nothing is lost
	Loss      Verdict = "loss"       // the recorded rate is the same, and events are missing
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
	// level is how often a loss is found on the day of a change where there is none.
	level = 0.005
	// searchLevel is the same for all other days together.
	searchLevel = 0.001
	// leastSide is how many days there are on either side of a day without a change: a week, so
	// that a weekend or a holiday is no step.
	leastSide = 7
	// leastOdd is by how much a day differs that may be a holiday.
	leastOdd = 0.25
	// maxDays bounds the time that a verdict takes: three years.
	maxDays = 1100
)

// LeftOut is a day that takes no part in the verdict.
type LeftOut struct {
	Day time.Time
	Why string
}

// Short is a day that by itself differs from what is expected.
type Short struct {
	Day    time.Time
	Change float64 // relative: -1 is all
}

// Report is what an audit found.
type Report struct {
	Bins    []*Bin // by time, those without items left out
	Days    []*Bin // the same by days
	Changes []RateChange
	LeftOut []LeftOut
	// Spread is by how much days vary beyond sampling noise, relative (a standard deviation).
	Spread float64
	// Step is the change of the weighted sums on the day of the largest change of the rate, or
	// the loss that was found; nil if nothing could be compared.
	Step *Step
	Lost bool // Step is a loss: all of its interval is
	// Odd is the day that differs most from the others of its weekday, if it does so by much; nil:
	// none.
	Odd *Short
	// Short are days that fall short of the reference by themselves.
	Short []Short
	// TrailingDays is how many days of the reference come after the last item.
	TrailingDays int
	// Empty is how many days without items count as days: so few are usual that chance explains it.
	Empty int
	// Unseen is the largest loss that can't be excluded; 1 if nothing can.
	Unseen   float64
	Suspect  int64 // items whose itemCount contradicts their sampling rate
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
	r := &Report{Bins: s.Bins(), Referred: c.Reference != nil, Unseen: 1}
	days := r.choose(all, s.zone, &c)
	if len(days) > maxDays {
		return nil, fmt.Errorf("it is of %d days: take %d or fewer at a time", len(days), maxDays)
	}
	for _, d := range r.Days {
		r.Suspect += d.Suspect
	}
	r.Changes = rateChanges(r.Days) // a rate is a fact on a day that is left out, too
	if c.Reference != nil {
		r.refer(days, &c)
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
	first, few := all[0].Start, scarce(all)
	for i, d := range all {
		day := first.AddDate(0, 0, i)
		leave := func(why string) { r.LeftOut = append(r.LeftOut, LeftOut{day, why}) }
		if d == nil {
			if holiday[day] {
				leave("holiday")
			} else if c.Reference[day] > 0 || c.Reference == nil && few[day.Weekday()] {
				days = append(days, &Bin{Start: day})
				r.Empty++
			} else {
				leave("no items")
			}
			continue
		}
		r.Days = append(r.Days, d)
		switch {
		case holiday[day]:
			leave("holiday")
		case i == 0 && beginsLate(all):
			leave("begins at " + d.First.In(zone).Format("15:04"))
		case i == len(all)-1 && endsEarly(all):
			leave("ends at " + d.Last.In(zone).Format("15:04"))
		case d.Weighted <= 0 || d.Items <= 0 || d.Weight <= 0:
			leave("its sum is not positive")
		case c.Reference != nil && c.Reference[day] <= 0:
			leave("no reference")
		default:
			days = append(days, d)
		}
	}
	last := first.AddDate(0, 0, len(all)-1)
	for day, count := range c.Reference {
		if day.After(last) && count > 0 {
			r.TrailingDays++
		}
	}
	return days
}

// scarce reports of each weekday whether its days have so few items that one without any is chance.
func scarce(all []*Bin) (few [7]bool) {
	var items, days [7]float64
	for _, d := range all {
		if d != nil {
			items[d.Start.Weekday()] += float64(d.Items)
			days[d.Start.Weekday()]++
		}
	}
	for weekday := range few {
		few[weekday] = items[weekday] > 0 && items[weekday] < fewItems*days[weekday]
	}
	return few
}

// fewItems are the fewest a day of which chance leaves none in one of 20,000 days.
const fewItems = 10

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
	case r.Unseen >= tolerance || r.TrailingDays > 0:
		return Undecided
	case changed:
		return Sampling
	}
	return Neither
}

// lost reports whether a loss was found.
func (r *Report) lost() bool { return r.Lost || len(r.Short) > 0 }

// seek looks for a loss in the weighted sums, on the day of the largest change of the rate, and if
// there is none, on all others that have a week on either side.
func (r *Report) seek(days []*Bin) {
	var change time.Time
	if len(r.Changes) > 0 {
		change = largest(r.Changes).Day
		known, ok := compare(days, change)
		if ok {
			r.conclude(known, level)
		}
		if r.Lost || r.Drift {
			return
		}
	}
	var found *comparison
	unseen, tries := 0.0, len(days)-2*leastSide+1
	for i := leastSide; i <= len(days)-leastSide; i++ {
		c, ok := compare(days, days[i].Start)
		if !ok {
			unseen = 1
			continue
		}
		unseen = max(unseen, -c.step(level).Low)
		if c.step(searchLevel/float64(tries)).High < 0 && (found == nil || c.score() < found.score()) {
			found = c
		}
	}
	switch {
	case found != nil:
		r.conclude(found, searchLevel/float64(tries))
	case change.IsZero() && tries > 0:
		r.Unseen = unseen
	}
}

// conclude reports a comparison.
func (r *Report) conclude(c *comparison, level float64) {
	r.Step, r.Spread = c.step(level), math.Sqrt(c.spread)
	r.Unseen = -r.Step.Low
	if r.Step.High < 0 {
		r.Drift = c.drifts()
		r.Lost = !r.Drift
	}
	if day, by := c.odd(); math.Abs(by) > leastOdd {
		r.Odd = &Short{day, by}
	}
}
