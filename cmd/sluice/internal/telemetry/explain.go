package telemetry

import (
	"fmt"
	"strings"
	"time"
)

// Explain says in sentences what was found, the verdict first.
func (r *Report) Explain() []string {
	list := []string{r.headline()}
	for _, c := range r.Changes {
		list = append(list, c.String())
	}
	if len(r.Changes) == 0 && len(r.Days) > 0 {
		list = append(list, fmt.Sprintf("The sampling rate is steady at %.3g %%.", sum(r.Days).Rate()))
	}
	if s := r.Step; s != nil {
		list = append(list, s.sentence(r.Referred))
	}
	if r.Drift {
		list = append(list, "The weighted sums drift from day to day rather than step: look for a trend of the business before looking for a loss.")
	}
	list = append(list, r.shortages()...)
	if !r.Drift && !r.lost() && r.Unseen < 1 {
		list = append(list, fmt.Sprintf("A loss of more than %.1f %% is excluded with 95 %% confidence; one of %.1f %% or more would have been found about nine times in ten.", 100*max(r.Unseen, 0), 100*r.Found))
	}
	if !r.Referred && r.Spread > 0 {
		list = append(list, fmt.Sprintf("Days that should be alike differ by %.1f %%; a reference (how many events there were, unsampled) would show a smaller loss.", 100*r.Spread))
	}
	if r.Suspect > 0 {
		list = append(list, fmt.Sprintf("Warning: %d items have itemCount 1 beside a sampling rate in microsoft.sample_rate; they were weighed by that rate. Queries that sum itemCount alone see a loss that there isn't.", r.Suspect))
	}
	for _, l := range r.LeftOut {
		list = append(list, fmt.Sprintf("%s is left out of the verdict: %s.", l.Day.Format(time.DateOnly), l.Why))
	}
	return list
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

func (r *Report) headline() string {
	switch r.Verdict {
	case Sampling:
		return "Sampling, not loss: the SDK keeps fewer items, and each stands for more."
	case Loss:
		return "Events are missing, and sampling doesn't explain it: its rate is steady."
	case Both:
		return "Both: the SDK samples more, and events are missing besides."
	case Neither:
		return "Nothing has changed: the sampling rate is steady, and so are the weighted sums."
	}
	switch {
	case r.Drift:
		return "Can't tell: the days drift."
	case r.Unseen >= 1:
		return "Can't tell: there are too few days to exclude any loss."
	case r.Beyond == 1:
		return "Can't tell: the reference has a day after the last item; ask for the same days."
	case r.Beyond > 1:
		return fmt.Sprintf("Can't tell: the reference has %d days after the last item; ask for the same days.", r.Beyond)
	}
	return "Can't tell: the days differ too much from each other to exclude a loss that matters."
}

// String is a sentence.
func (c *RateChange) String() string {
	text := fmt.Sprintf("The sampling rate went from %.3g %% to %.3g %% on %s (%s).", c.Before, c.After, c.Day.Format(time.DateOnly), confidence(c.P))
	if len(c.Came) > 0 {
		text += " That day came SDK " + strings.Join(c.Came, ", ")
		if len(c.Went) > 0 {
			text += " for " + strings.Join(c.Went, ", ")
		}
		text += "."
	}
	return text
}

func (s *Step) sentence(referred bool) string {
	what, direction := "The weighted sum", "fell"
	if s.Change > 0 {
		direction = "rose"
	}
	since := "on " + s.Day.Format(time.DateOnly)
	if referred {
		what, direction = "Against the reference the weighted sum", "is short"
		since = "from " + s.Day.Format(time.DateOnly) + " on"
		if s.Day.IsZero() {
			since = "from the first day on"
		}
	}
	least, most := abs(s.High), abs(s.Low)
	if s.Change > 0 {
		least, most = most, least
	}
	return fmt.Sprintf("%s %s by %.1f %% %s (95 %% interval %.1f to %.1f %%; %s).",
		what, direction, 100*abs(s.Change), since, 100*least, 100*most, confidence(s.P))
}

// confidence returns the probability that it was not chance, as text.
func confidence(p float64) string {
	if p < 0.0002 {
		return "confidence above 99.98 %"
	}
	return fmt.Sprintf("confidence %.2f %%", 100*(1-p))
}

func abs(x float64) float64 { return max(x, -x) }
