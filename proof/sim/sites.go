package sim

import (
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/bounds"
)

// requests are the engine's requests to each part of the world. It requests the
// ends of the log only if there is an observer.
var requests = map[string][]string{
	"leases":   {"acquire", "mark", "renew", "release", "list"},
	"hub":      {"describe", "bounds", "seek", "open", "fetch"},
	"database": {"claim", "start", "begin", "commit", "record", "leave", "due"},
}

// streamed are the requests of an at-least-once delivery.
var streamed = map[string][]string{
	"leases":   requests["leases"],
	"hub":      requests["hub"],
	"database": {"claim", "start", "advance", "leave", "due", "park", "settle", "parked", "held"},
	"target":   {"write"},
}

// chained are the requests of two stages, the first at least once and the
// second transactional.
var chained = map[string][]string{
	"leases":   requests["leases"],
	"hub":      requests["hub"],
	"database": {"seen", "claim", "start", "begin", "commit", "record", "leave", "due", "advance", "park", "settle", "parked", "held"},
	"target":   {"append"},
}

// rare are requests that a consumer makes so seldom that the usual rate of faults
// would hardly strike them, with a higher rate. Important ones are among them.
var rare = map[string]float64{
	"acquire": 0.15, "bounds": 0.15, "claim": 0.1, "open": 0.2, "seek": 0.5,
	"commit": 0.1, "record": 0.35, "leave": 0.6, "due": 0.15, "release": 0.6,
	"fetch": 0.08, "seen": 0.4, "append": 0.15,
	"start": 0.5, "mark": 0.5,
	"advance": 0.3, "park": 0.7, "settle": 0.95, "parked": 0.3, "held": 0.3,
}

// hungOneIn is in how many faults of a request it is never answered.
func hungOneIn(op string) int {
	if op == "settle" { // seldom made
		return 2
	}
	return 4
}

// part is the part of the world that serves a request.
func part(op string) string {
	for _, parts := range []map[string][]string{requests, streamed, chained} {
		for name, ops := range parts {
			if slices.Contains(ops, op) {
				return name
			}
		}
	}
	panic("sim: no part of the world serves the request " + op)
}

// Sites are the names of all kinds of faults, sorted; [Result] counts by them.
func Sites() []string {
	return sites(requests, drawn, "start commit", "failover that loses commits", "poisoned", "lost insert", "late commit that took effect", "gave up a commit under way", takesTurns)
}

// besideSeeds are further sites of those worlds. They are rare: Transactional looks for dead
// letters only after the checkpoint of a sparse topic was set back.
func besideSeeds() []string {
	return sites(map[string][]string{"database": {"parked", "set aside"}}, drawn, "")
}

// StreamSites are those of worlds with at-least-once delivery.
func StreamSites() []string {
	return sites(streamed, drawnStream, "write start advance park settle", "failover that loses commits", "late commit that took effect",
		"partition changes to Transactional", "partition changes to AtLeastOnce", takesTurns)
}

// besideStreams are further sites of those worlds, in processes that a deployment has made
// transactional. How often they strike counts in worlds where all processes are.
func besideStreams() []string {
	return append(sites(requests, drawnStream, "start commit"), "lost insert", "gave up a commit under way")
}

// goesBack is what some failovers in worlds of two stages lead to.
const goesBack = "watermark that goes back"

// dedupFull strikes in builds with small bounds alone.
const dedupFull = "bound of deduplication"

// ChainSites are those of worlds of two stages.
func ChainSites() []string {
	list := sites(chained, drawnChain, "append start advance park settle commit", "failover that loses commits", goesBack, "late commit that took effect", "lost insert", "gave up a commit under way", "repeat")
	if bounds.Small {
		list = append(list, dedupFull)
	}
	return list
}

// themed reports whether a kind of fault is seldom, for most that it belongs to a theme, which
// only some worlds have.
func themed(site string) bool {
	if site == goesBack || site == takesTurns || strings.HasPrefix(site, hung.String()) || strings.HasPrefix(site, answeredLate.String()) {
		return true
	}
	if strings.HasPrefix(site, "partition changes to ") {
		return true
	}
	for _, list := range themeSites {
		if slices.Contains(list, site) {
			return true
		}
	}
	return false
}

// sites are those of the requests; changes are the requests that change something.
func sites(requests map[string][]string, themes theme, changes string, more ...string) []string {
	list := append([]string{
		"kill", "stop", "pause", "pause, the monotonic clock too", "pause, all clocks too", "pause past the lease", "clock jump",
		"loss of the leases", "partition added", "retry of all dead letters", "command to redrive", "late commit",
	}, more...)
	for _, what := range plants {
		list = append(list, planted+what)
	}
	for _, op := range strings.Fields(changes) {
		list = append(list, fatal.String()+" "+op, delayed.String()+" "+op)
	}
	for name, ops := range requests {
		list = append(list, "outage of the "+name, "request in an outage of the "+name)
		for _, op := range ops {
			list = append(list, lost.String()+" "+op, unanswered.String()+" "+op, "slow "+op)
			if op != "fetch" && !slices.Contains(strings.Fields(changes), op) {
				list = append(list, answeredLate.String()+" "+op)
			}
			if themes&hangs != 0 && !slices.Contains(neverHung, op) {
				list = append(list, hung.String()+" "+op)
			}
		}
	}
	for i, name := range themeNames {
		if themes&(1<<i) != 0 {
			list = append(list, themeSites[name]...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list) // two themes may have one site
}
