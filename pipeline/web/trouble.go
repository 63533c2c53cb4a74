package web

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/health"
)

// trouble is a condition that an operator should know of, or act on.
type trouble struct {
	Level string `json:"level"` // bad, warn, note
	Text  string `json:"text"`
}

// named is how many partitions are named at most.
const named = 8

// troubles returns all conditions that an operator should know of, the worst first.
func troubles(k *known, rows []row, warnings []health.Warning, recent share) []trouble {
	list := []trouble{}
	say := func(level, format string, args ...any) {
		list = append(list, trouble{level, fmt.Sprintf(format, args...)})
	}
	var paused []string
	for i := range rows {
		switch r := &rows[i]; r.State {
		case "stopped":
			say("bad", "Partition %s halted, operator action required: %s", r.ID, r.Error)
		case "stalled":
			say("warn", "Partition %s stalled: %s", r.ID, r.Error)
		case "paused":
			paused = append(paused, r.ID)
		}
	}
	if level := recent.level(); level != "" {
		say(level, "%d of %d events of the last minute became dead letters: look at the newest ones.", recent.dead, recent.all)
	}
	for _, what := range slices.Sorted(maps.Keys(k.failed)) {
		say("bad", "The %s did not answer: %s", what, k.failed[what])
	}
	for _, w := range warnings {
		switch {
		case w.Kind == health.WarningStalled && among(w.Partitions, paused):
			// The checkpoint is stuck because the partition is paused, as the note below says.
		case w.Kind == health.WarningExpired || w.Kind == health.WarningExpiring:
			say("bad", "%s", w.Text)
		default:
			say("warn", "%s", w.Text)
		}
	}
	if len(paused) > 0 {
		say("note", "%s paused here, until resumed or until this process ends.", subject(paused, "is", "are"))
	}
	slices.SortStableFunc(list, func(a, b trouble) int { return rank[a.Level] - rank[b.Level] })
	return list
}

// share is how many of the newest events became dead letters.
type share struct{ dead, all int64 }

// Of so many events, dead letters are more than a few bad events: something is wrong with the
// pipeline, or with what is sent to it.
const (
	fewDead  = 10
	manyDead = 0.05 // of all: a warning
	mostDead = 0.5  // of all: action required
)

// shareOf returns the share of some seconds of a meter. The events of a delivery at least once that
// are done do not include its dead letters.
func shareOf(seconds []sample, atLeastOnce bool) (s share) {
	for i := range seconds {
		s.dead += seconds[i].DeadLetters
		s.all += seconds[i].Done
	}
	if atLeastOnce {
		s.all += s.dead
	}
	s.all = max(s.all, s.dead) // they are reported before the checkpoint moves
	return s
}

func (s share) level() string {
	switch part := float64(s.dead) / float64(max(s.all, 1)); {
	case s.dead >= fewDead && part >= mostDead:
		return "bad"
	case s.dead >= fewDead && part >= manyDead:
		return "warn"
	}
	return ""
}

// rank orders levels, the worst first.
var rank = map[string]int{"bad": 0, "warn": 1, "note": 2}

// among reports whether all partitions are in a list.
func among(ids, list []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(list, id) })
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
