package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/humanize"
)

// shownRuns is how many runs of faulty events a headline names of each kind.
const shownRuns = 3

// fullHeadline says in one sentence how many events were checked and what became of
// them, which are lost or duplicated, and why something is not known.
func (r *Report) fullHeadline() string {
	c := &r.Total
	parts := []string{r.faults(Lost), r.faults(Duplicated)}
	for _, kind := range []FaultKind{Expired, Stray} {
		if c.Faults[kind] > 0 {
			parts = append(parts, r.faults(kind))
		}
	}
	parts = append(parts, humanize.Count(c.Written)+" written", humanize.Count(c.Waiting)+" in flight", humanize.Plural(c.DeadLetters, "dead letter", "dead letters"))
	for _, of := range []struct {
		n    int64
		text string
	}{{c.Unselected, "not selected"}, {c.Deduplicated, "skipped as repetitions"}, {c.Skipped, "before the beginning"}} {
		if of.n > 0 {
			parts = append(parts, humanize.Count(of.n)+" "+of.text)
		}
	}
	unclear := humanize.Count(c.Unclear) + " not decidable"
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(c.UnclearWhy)) {
		if len(c.UnclearWhy) > 1 {
			reason = humanize.Count(c.UnclearWhy[reason]) + ": " + reason
		}
		why = append(why, reason)
	}
	if len(why) > 0 {
		unclear += " (" + strings.Join(why, "; ") + ")"
	}
	parts = append(append(parts, unclear), r.Notes...)
	text := fmt.Sprintf("Checked %s: %s", humanize.Plural(c.Held, "event", "events"), strings.Join(parts, ", "))
	if c.Removed > 0 {
		text += r.removed() + " and not checked"
	}
	if doubt := r.doubts(); doubt != "" {
		text += "; can't tell: " + doubt
	}
	return text + "."
}

// faults returns how many events have a kind of fault, and the first runs of them.
func (r *Report) faults(kind FaultKind) string {
	text := fmt.Sprintf("%s %s", humanize.Count(r.Total.Faults[kind]), kind)
	var runs []string
	partition, more := "", false
	for _, f := range r.Faults {
		if f.Kind != kind {
			continue
		}
		if more = len(runs) == shownRuns; more {
			break
		}
		run := fmt.Sprint(f.First)
		if f.First != f.Last {
			run += fmt.Sprintf(" to %d", f.Last)
		}
		if len(runs) == 0 || f.Partition != partition {
			run, partition = fmt.Sprintf("partition %s: %s", f.Partition, run), f.Partition
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		return text
	}
	if more {
		runs = append(runs, "…")
	}
	return text + " (" + strings.Join(runs, ", ") + ")"
}
