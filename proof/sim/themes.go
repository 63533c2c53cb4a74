package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// theme is a kind of trouble that only some worlds have, in addition to what happens
// in all of them.
type theme uint

const (
	hangs           theme = 1 << iota // requests that are never answered, while others are
	silentReaders                     // readers that return nothing more, and no error
	hangingHandlers                   // handlers and mappings that hang
	exits                             // handlers and mappings that exit their goroutine
	apiOutages                        // an API is down, and handlers and sinks say so
	environments                      // every event fails for a while
	timeLimits                        // batches with one event run into the database's time limit
	retention                         // it removes the front of the log
	recreations                       // the topic is deleted and created again
	staleLogs                         // a log that says wrongly that events are gone, or a position past its end, and reports old bounds
	operators                         // they set checkpoints, discard dead letters and have them redriven later
	hangingSinks                      // sinks that do not answer for a long time
	doubleAnswers                     // sinks that answer twice
	leaseClocks                       // the lease store's clock is set forward and back
	twins                             // two processes of one owner name
	cutOffs                           // a process does not reach the lease store, while others do
	newLeases                         // the lease store is new, the checkpoints are old: their epochs are high
	fixedNumbers                      // beside balanced processes, one that takes a fixed number or all that is free
	replays                           // processes of another group that replay the log into memory
	beginnings                        // the log's beginning moves while a process looks for it; half of these logs report it with the next event only
	resizes                           // the topic is recreated with another number of partitions, and described without some of them
	deployments                       // processes are restarted with other settings, and with the other delivery
	gaps                              // numbers of the logs hold no event
)

var themeNames = [...]string{"hangs", "silent-readers", "hanging-handlers", "exits", "api-outages", "environments", "time-limits", "retention", "recreations", "stale-logs", "operators", "hanging-sinks", "double-answers", "lease-clocks", "twins", "cut-offs", "new-leases", "fixed-numbers", "replays", "beginnings", "resizes", "deployments", "gaps"}

// The themes that seeds draw, by the kind of world.
const (
	all         = 1<<len(themeNames) - 1
	drawn       = all &^ (hangingSinks | doubleAnswers)
	drawnStream = all &^ timeLimits // those of a database
	drawnChain  = all &^ notInChains
)

// notInChains are themes that repeat or skip events of the first stage, which may then take
// effect again in the second, those of another sink, and those of balanced processes and of
// another delivery.
const notInChains = retention | recreations | operators | hangingSinks | doubleAnswers | replays | fixedNumbers | beginnings | resizes | deployments

// themeSites are the kinds of faults of each theme, besides those of requests.
var themeSites = map[string][]string{
	"silent-readers":   {"reader that falls silent"},
	"hanging-handlers": {"handler that hangs"},
	"exits":            {"handler that exits its goroutine"},
	"api-outages":      {"outage of the " + api},
	"environments":     {"outage of the " + environment},
	"time-limits":      {"transaction that ran out of time"},
	"retention":        {"retention", "retention of events that are not done", "checkpoint set after a halt"},
	"recreations":      {"topic recreated", "checkpoint set after a halt"},
	"stale-logs":       {"log that lies", "bounds out of date"},
	"hanging-sinks":    {"sink that does not answer"},
	"cut-offs":         {"process cut off from the leases", "request of a process that is cut off"},
	"lease-clocks":     {"lease store's clock set"},
	"twins":            {"two processes of one owner name"},
	"double-answers":   {"sink that answers twice"},
	"fixed-numbers":    {"process with a fixed number of partitions"},
	"beginnings":       {"beginning that moves after a seek", "beginning that moves after an opening"},
	"resizes":          {"topic recreated with fewer partitions", "partition that comes back", "partition released because it is gone", "description without a partition", "topic recreated"},
	"deployments":      {"deployment"},
	"gaps":             {"numbers without an event", "checkpoint moved over numbers without an event"},
	"replays":          {"replay that fails", "replay that starts over"},
	"operators":        {"checkpoint set", "discard", "redrive at a later time", planted + tooEarly},
}

// ParseThemes reads the names of themes, separated by commas.
func ParseThemes(text string) (t theme, err error) {
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(themeNames[:], strings.TrimSpace(name))
		if i < 0 {
			return 0, fmt.Errorf("theme %q: unknown; use %s", name, strings.Join(themeNames[:], ", "))
		}
		t |= 1 << i
	}
	return t, nil
}

// drawThemes draws each theme of a list with a probability of a quarter.
func drawThemes(seed uint64, from theme) theme {
	r := rand.New(rand.NewPCG(seed, 10))
	var t theme
	for i := range themeNames {
		if one := theme(1 << i); r.IntN(4) == 0 && from&one != 0 {
			t |= one
		}
	}
	return t
}

// has reports whether the world has a theme.
func (w *world) has(t theme) bool { return w.cfg.Themes&t != 0 }

// injectThemed injects one random fault of the world's themes.
func (w *world) injectThemed() {
	w.mu.Lock()
	w.nextThemed = time.Now().Add(5*time.Second + time.Duration(w.rng.ExpFloat64()*float64(20*time.Second)))
	span := time.Duration(10+w.rng.IntN(60)) * time.Second
	var choice []func()
	for _, f := range []struct {
		theme theme
		fault func()
	}{
		{apiOutages, func() { w.takeDown(api, span) }},
		{environments, func() { w.fail(4 * span) }}, // longer than the engine takes to try 20 events to the end
		{leaseClocks, w.setLeaseClock},
		{twins, w.twin},
		{cutOffs, func() { w.cutOff(span) }},
		{retention, w.trim},
		{recreations, w.recreate},
		{deployments, w.deploy},
		{resizes, w.resize},
		{resizes, func() { w.shorten(span) }},
		{operators, w.setCheckpoint},
		{operators, w.discard},
		{operators, func() { w.redriveLater(span) }},
	} {
		if w.has(f.theme) {
			choice = append(choice, f.fault)
		}
	}
	if len(choice) == 0 {
		w.nextThemed = never(w)
		w.mu.Unlock()
		return
	}
	fault := choice[w.rng.IntN(len(choice))]
	w.mu.Unlock()
	fault()
}
