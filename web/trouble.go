package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// trouble is what a person should know of, or do something about.
type trouble struct {
	Level string `json:"level"` // bad, warn, note
	Text  string `json:"text"`
}

const (
	// freeFor is how long a partition may be without an owner before that is
	// told: it takes a while to take them all, one a second.
	freeFor = 15 * time.Second
	// stillFor is how long a checkpoint may stand while events wait.
	stillFor = time.Minute
	// named is how many partitions are named at most.
	named = 8
)

// troubles says what is not as it should be, the worst first.
func troubles(k *known, rows []row, f *figures, now time.Time) []trouble {
	list := []trouble{}
	say := func(level, format string, args ...any) {
		list = append(list, trouble{level, fmt.Sprintf(format, args...)})
	}
	var free, paused []string
	for i := range rows {
		r := &rows[i]
		switch r.State {
		case "stopped":
			say("bad", "Partition %s can't go on: %s", r.ID, r.Error)
		case "free":
			if since, ok := k.free[r.ID]; ok && now.Sub(since) >= freeFor {
				free = append(free, r.ID)
			}
		case "paused":
			paused = append(paused, r.ID)
		case "reading":
			if h := f.held[r.ID]; r.Lag > 0 && now.Sub(h.moved) >= stillFor {
				say("warn", "Partition %s has not moved for %s while %d events wait.", r.ID, now.Sub(h.moved).Truncate(time.Second), r.Lag)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(k.failed)) {
		say("bad", "The %s did not answer: %s", what, k.failed[what])
	}
	if len(free) > 0 {
		say("warn", "%s no owner: start more consumers, or let them take more.", subject(free, "has", "have"))
	}
	if len(paused) > 0 {
		say("note", "%s paused here, until resumed or until this process ends.", subject(paused, "is", "are"))
	}
	return list
}

// subject names partitions, with the verb that goes with them.
func subject(ids []string, one, many string) string {
	if len(ids) == 1 {
		return "Partition " + ids[0] + " " + one
	}
	text := "Partitions " + strings.Join(ids[:min(len(ids), named)], ", ")
	if more := len(ids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + " " + many
}
