package telemetry

import (
	"fmt"
	"math"
	"strconv"
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

// headline says what is known, with its numbers.
func (r *Report) headline() string {
	sampled := len(r.Changes) > 0
	switch r.Verdict {
	case Sampling, Neither:
		return r.cause() + "; a loss of " + percent(r.Unseen) + " or more is excluded."
	case Loss, Both:
		return r.missing(sampled)
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
	return r.cause() + "; a loss under " + percent(r.Unseen) + " can't be excluded."
}

// cause says what the sampling rate explains.
func (r *Report) cause() string {
	if len(r.Changes) == 0 {
		return "The sampling rate is steady, and so are the weighted sums as far as the days show"
	}
	if first, last := r.Changes[0], r.Changes[len(r.Changes)-1]; last.After > first.Before {
		return "Sampling explains the rise"
	}
	return "Sampling explains the drop"
}

// missing says how much is missing.
func (r *Report) missing(sampled bool) string {
	why := "sampling doesn't explain it: its rate is steady."
	if sampled {
		why = "sampling explains the rest of the change."
	}
	if s := r.Step; s != nil && s.Change < 0 {
		return fmt.Sprintf("About %.1f %% of the events are missing (99.5 %% interval %.1f to %.1f %%); %s", -100*s.Change, max(0, -100*s.WideHigh), -100*s.WideLow, why)
	}
	days := "1 day"
	if n := len(r.Short); n > 1 {
		days = fmt.Sprintf("%d days", n)
	}
	return fmt.Sprintf("Events are missing on %s; %s", days, why)
}

// percent is a share as text, rounded up: what is said of it holds for the text too.
func percent(share float64) string {
	at := math.Ceil(1000*max(share, 0)) / 10
	if at >= 10 {
		at = math.Ceil(at)
	}
	return strconv.FormatFloat(at, 'f', -1, 64) + " %"
}

// String is a sentence.
func (c *RateChange) String() string {
	text := fmt.Sprintf("The sampling rate went from %.3g %% to %.3g %% on %s (%s).", c.Before, c.After, c.Day.Format(time.DateOnly), confidence(c.P))
	if len(c.Came) > 0 {
		text += " SDK " + strings.Join(c.Came, ", ") + " came that day"
		if len(c.Went) > 0 {
			text += ", in place of " + strings.Join(c.Went, ", ")
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
