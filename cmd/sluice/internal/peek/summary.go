package peek

import (
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Summary says what was looked at, in a few lines: first what is strange, and at last how much was
// shown of the log of this name.
func (r *Result) Summary(name string, cfg *Config) []string {
	lines := r.Notes
	if r.Undecided > 0 {
		lines = append(lines, fmt.Sprintf("%s left out, because it cannot be decided whether they match; the first: %v", humanize.Plural(r.Undecided, "event is", "events are"), r.Why))
	}
	text := r.shown(name, cfg)
	if len(r.Empty) > 0 && len(r.Empty) < len(r.Partitions) {
		text += "; without events: " + named(r.Empty)
	}
	if len(r.Earlier) > 0 && len(r.Earlier)+len(r.Empty) < len(r.Partitions) {
		text += "; without events from the start on: " + named(r.Earlier)
	}
	if r.Cut {
		text += "; older events were not searched: --scan N searches more, and so does --start"
	}
	return append(lines, text)
}

func (r *Result) shown(name string, cfg *Config) string {
	held := humanize.Plural(r.Events, "event", "events")
	if r.Sparse {
		held = humanize.Plural(r.Events, "offset", "offsets")
	}
	switch {
	case cfg.Follow:
		return humanize.Plural(r.Shown, "event of ", "events of ") + name
	case r.Events == 0:
		return fmt.Sprintf("%s: no events in %s", name, named(r.Partitions))
	case cfg.Match != nil:
		return fmt.Sprintf("%s: %s shown, %s searched, the log has %s", name, humanize.Plural(r.Shown, "event", "events"), humanize.Count(r.Searched), held)
	case r.Shown == 0:
		return fmt.Sprintf("%s: no events from the start on: the log has %s before it", name, held)
	case cfg.Start != nil:
		return fmt.Sprintf("%s: %s, the first from the start on; the log has %s", name, humanize.Plural(r.Shown, "event", "events"), held)
	}
	return fmt.Sprintf("%s: %s, the newest of %s", name, humanize.Plural(r.Shown, "event", "events"), held)
}

// named lists partitions.
func named(partitions []string) string {
	const most = 20
	noun := "partition "
	if len(partitions) > 1 {
		noun = "partitions "
	}
	if more := len(partitions) - most; more > 0 {
		return fmt.Sprintf("%s%s and %d more", noun, strings.Join(partitions[:most], ", "), more)
	}
	return noun + strings.Join(partitions, ", ")
}
