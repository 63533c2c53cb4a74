//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// A test that was flaky twice within so many runs is red, unless it is in quarantine.
const rememberedRuns = 20

// quarantined tests may be flaky again until a day, for a reason.
type quarantined struct {
	test    string // as the summary names it: PACKAGE.TEST
	reason  string
	lastDay string // a day, at most a fortnight after the entry was made
}

// quarantine has at most ten entries.
var quarantine = []quarantined{}

// history is what bin/flaky.json holds: the last runs, the newest last.
type history struct {
	Runs []pastRun `json:"runs"`
}

type pastRun struct {
	Time  time.Time `json:"at"`
	Tier  string    `json:"tier"`
	Flaky []flake   `json:"flaky,omitempty"`
}

const historyFile = "bin/flaky.json"

func readHistory() (*history, error) {
	if err := checkQuarantine(quarantine, time.Now()); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(historyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &history{}, nil
	}
	if err != nil {
		return nil, err
	}
	h := &history{}
	if err := json.Unmarshal(text, h); err != nil {
		return nil, fmt.Errorf("%s: %w: remove it, and flaky tests are counted from now on", historyFile, err)
	}
	return h, nil
}

// repeated are the flaky tests of a run that were flaky in one of the last runs already and are not
// in quarantine.
func (h *history) repeated(flaky []flake, now time.Time) []string {
	var again []string
	for i, f := range flaky {
		same := func(other flake) bool { return other.name() == f.name() }
		recent := h.Runs[max(0, len(h.Runs)-rememberedRuns+1):]
		if !inQuarantine(quarantine, f.name(), now) && (slices.ContainsFunc(flaky[:i], same) ||
			slices.ContainsFunc(recent, func(p pastRun) bool { return slices.ContainsFunc(p.Flaky, same) })) {
			again = append(again, f.name())
		}
	}
	return again
}

// add notes a run, and forgets the oldest.
func (h *history) add(p pastRun) error {
	h.Runs = append(h.Runs, p)
	h.Runs = h.Runs[max(0, len(h.Runs)-rememberedRuns):]
	text, err := json.MarshalIndent(h, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(historyFile, append(text, '\n'), 0o644)
}

func inQuarantine(list []quarantined, test string, now time.Time) bool {
	return slices.ContainsFunc(list, func(q quarantined) bool {
		until, err := time.Parse(time.DateOnly, q.lastDay)
		return err == nil && q.test == test && now.Before(until.AddDate(0, 0, 1))
	})
}

// checkQuarantine refuses a list that has become a place to forget tests.
func checkQuarantine(list []quarantined, now time.Time) error {
	if len(list) > 10 {
		return fmt.Errorf("quarantine has %d tests, at most 10 are allowed: mend some", len(list))
	}
	for _, q := range list {
		until, err := time.Parse(time.DateOnly, q.lastDay)
		switch {
		case err != nil:
			return fmt.Errorf("quarantine of %s: %w", q.test, err)
		case q.reason == "":
			return fmt.Errorf("quarantine of %s has no reason", q.test)
		case until.After(now.AddDate(0, 0, 14)):
			return fmt.Errorf("quarantine of %s until %s: at most 14 days are allowed", q.test, q.lastDay)
		}
	}
	return nil
}
