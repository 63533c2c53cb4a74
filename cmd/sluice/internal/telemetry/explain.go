package telemetry

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Explain says in sentences what was found, the verdict first.
func (r *Report) Explain() []string {
	list := append([]string{r.headline()}, r.rates()...)
	if r.Step != nil {
		list = append(list, r.Step.sentence(r.Referred))
		if r.Step.rounded() {
			list = append(list, "itemCount is a whole number, and a rate of 67 % or more is 1: exact rates (the property microsoft.sample_rate) would narrow the interval.")
		}
	}
	if r.Drift {
		list = append(list, "The weighted sums drift from day to day rather than step: look for a trend of the business before looking for a loss.")
	}
	list = append(list, r.shortages()...)
	if !r.Referred && r.Spread > 0 {
		list = append(list, fmt.Sprintf("Days that should be alike differ by %.1f %% beyond sampling noise; a reference (how many events there were, unsampled) would show a smaller loss.", 100*r.Spread))
	}
	if o := r.Odd; o != nil {
		day := o.Day.Format(time.DateOnly)
		list = append(list, fmt.Sprintf("%s differs from its weekday by %+.0f %%: if it was a holiday, leave it out with --holiday %s.", day, 100*o.Change, day))
	}
	if r.Suspect > 0 {
		list = append(list, fmt.Sprintf("Warning: %d items have an itemCount that contradicts their sampling rate in microsoft.sample_rate; an itemCount of 1 was weighed by the rate, any other counts, with the rate in the interval. Queries that sum itemCount alone can see a loss that there isn't.", r.Suspect))
	}
	if r.Empty > 0 {
		list = append(list, fmt.Sprintf("Days without items that count as 0: %d.", r.Empty))
	}
	for _, l := range r.LeftOut {
		list = append(list, fmt.Sprintf("%s is left out of the verdict: %s.", l.Day.Format(time.DateOnly), l.Why))
	}
	return list
}

// shownChanges is how many changes of the rate are listed one by one, the largest.
const shownChanges = 5

// rates are sentences about the recorded sampling rate. It is a fact, so nothing is tested.
func (r *Report) rates() (list []string) {
	if len(r.Changes) == 0 && strings.Contains(r.headline(), r.rate()) {
		return nil
	}
	if len(r.Changes) == 0 {
		return []string{"The recorded sampling rate is " + r.rate() + "."}
	}
	shown := slices.Clone(r.Changes)
	if len(shown) > shownChanges {
		slices.SortStableFunc(shown, func(a, b RateChange) int { return cmp.Compare(b.size(), a.size()) })
		shown = shown[:shownChanges]
		slices.SortFunc(shown, func(a, b RateChange) int { return a.Day.Compare(b.Day) })
	}
	for _, c := range shown {
		list = append(list, c.String())
	}
	if rest := len(r.Changes) - len(shown); rest > 0 {
		list = append(list, "And "+humanize.Plural(int64(rest), "smaller change", "smaller changes")+" of it.")
	}
	return list
}

// rate is the recorded rate where it does not change: on all days that have items.
func (r *Report) rate() string {
	low, high := math.Inf(1), 0.0
	for _, d := range r.Days {
		if rate := d.Rate(); rate > 0 {
			low, high = min(low, rate), max(high, rate)
		}
	}
	switch {
	case high == 0:
		return "not known"
	case fmt.Sprintf("%.3g", low) == fmt.Sprintf("%.3g", high):
		return fmt.Sprintf("%.3g %% on every day", low)
	}
	return fmt.Sprintf("between %.3g and %.3g %% on every day", low, high)
}

// shownShort is how many days with too few events are listed one by one.
const shownShort = 10

// shortages are sentences about the days that fall short by themselves.
func (r *Report) shortages() (list []string) {
	for i, s := range r.Short {
		if i == shownShort {
			return append(list, fmt.Sprintf("And %d more days fall short of the reference.", len(r.Short)-i))
		}
		if s.Change == -1 {
			list = append(list, fmt.Sprintf("On %s there are no items, though the reference counts some.", s.Day.Format(time.DateOnly)))
		} else {
			list = append(list, fmt.Sprintf("On %s by itself the weighted sum is %.1f %% short of the reference.", s.Day.Format(time.DateOnly), -100*s.Change))
		}
	}
	return list
}

// headline says what is known, with its numbers.
func (r *Report) headline() string {
	switch r.Verdict {
	case Sampling:
		return r.cause("explains") + "; a loss of " + percent(r.Unseen) + " or more is excluded."
	case Neither:
		return "The recorded sampling rate is " + r.rate() + ", and a loss of " + percent(r.Unseen) + " or more is excluded."
	case Loss, Both:
		return r.missing()
	}
	switch {
	case r.Drift:
		return "Can't tell: the days drift."
	case r.Unseen >= 1:
		return "Can't tell: there are too few days or items to exclude any loss" + r.known() + "."
	case r.TrailingDays == 1:
		return "Can't tell: the reference has a day after the last item; ask for the same days."
	case r.TrailingDays > 1:
		return fmt.Sprintf("Can't tell: the reference has %d days after the last item; ask for the same days.", r.TrailingDays)
	case len(r.Changes) > 0:
		return r.cause("can explain") + "; " + r.unseen()
	}
	return "The recorded sampling rate is " + r.rate() + "; " + r.unseen()
}

// unseen says which loss can't be excluded.
func (r *Report) unseen() string {
	text := "a loss under " + percent(r.Unseen) + " can't be excluded"
	if r.Step != nil && r.Step.rounded() && r.Unseen == -r.Step.Low {
		return text + " (under " + percent(-r.Step.NoiseLow) + " if each itemCount is exact)."
	}
	return text + "."
}

// known is the change of the rate, which is known where nothing else is.
func (r *Report) known() string {
	if len(r.Changes) == 0 {
		return ""
	}
	return "; the recorded sampling rate went " + largest(r.Changes).span()
}

// cause says what the change of the rate explains.
func (r *Report) cause(verb string) string {
	c := largest(r.Changes)
	what := "drop"
	if c.NewRate > c.OldRate {
		what = "rise"
	}
	return fmt.Sprintf("Sampling %s the %s (%s)", verb, what, c.span())
}

// missing says how much is missing.
func (r *Report) missing() string {
	why := "sampling doesn't explain it: its recorded rate is " + r.rate() + "."
	if len(r.Changes) > 0 {
		why = "sampling explains the rest of the change (" + largest(r.Changes).span() + ")."
	}
	if s := r.Step; r.Lost {
		return fmt.Sprintf("About %.1f %% of the events are missing (99 %% interval %.1f to %.1f %%); %s", -100*s.Change, max(0, -100*s.High), -100*s.Low, why)
	}
	return fmt.Sprintf("Events are missing on %s; %s", humanize.Plural(int64(len(r.Short)), "day", "days"), why)
}

// percent is a share as text, rounded up: what is said of it holds for the text too.
func percent(share float64) string {
	tenths := math.Ceil(1000*max(share, 0)) / 10
	if tenths >= 10 {
		tenths = math.Ceil(tenths)
	}
	return strconv.FormatFloat(tenths, 'f', -1, 64) + " %"
}

// span is a change of the rate with its day.
func (c RateChange) span() string {
	return fmt.Sprintf("from %.3g %% to %.3g %% on %s", c.OldRate, c.NewRate, c.Day.Format(time.DateOnly))
}

// String is a sentence.
func (c RateChange) String() string {
	text := fmt.Sprintf("The recorded sampling rate went %s (%+.0f %%).", c.span(), 100*(c.NewRate/c.OldRate-1))
	switch {
	case len(c.Came) > 0 && len(c.Went) > 0:
		return text + " SDK " + strings.Join(c.Came, ", ") + " came that day, in place of " + strings.Join(c.Went, ", ") + "."
	case len(c.Came) > 0:
		return text + " SDK " + strings.Join(c.Came, ", ") + " came that day."
	case len(c.Versions) > 0:
		return text + " No SDK came that day: it is " + strings.Join(c.Versions, ", ") + "."
	}
	return text + " No version of an SDK is recorded."
}

// rounded reports whether the rounding of itemCount widens the interval.
func (s *Step) rounded() bool { return s.Low != s.NoiseLow || s.High != s.NoiseHigh }

func (s *Step) sentence(referred bool) string {
	text := "The weighted sum changed by %+.1f %% on %s"
	day := s.Day.Format(time.DateOnly)
	if referred {
		text = "Against the reference the weighted sum differs by %+.1f %% from %s on"
		if s.Day.IsZero() {
			day = "the first day"
		}
	}
	text = fmt.Sprintf(text+" (99 %% interval %+.1f to %+.1f %% with sampling noise and the days' variation", 100*s.Change, day, 100*s.NoiseLow, 100*s.NoiseHigh)
	if s.rounded() {
		text += fmt.Sprintf("; %+.1f to %+.1f %% with the rounding of itemCount too", 100*s.Low, 100*s.High)
	}
	return text + ")."
}
