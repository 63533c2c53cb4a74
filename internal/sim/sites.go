package sim

import "slices"

// requests are what the engine asks of each part of the world. It asks for the
// ends of the log only if there is an observer.
var requests = map[string][]string{
	"leases":   {"acquire", "renew", "release", "list"},
	"hub":      {"describe", "bounds", "seek", "open", "fetch"},
	"database": {"claim", "begin", "commit", "record", "leave", "due"},
}

// rare are the requests that a consumer makes so seldom that the usual rate of
// faults would hardly ever strike them; those that matter most are among them.
var rare = map[string]float64{
	"acquire": 0.15, "bounds": 0.15, "claim": 0.1, "open": 0.2, "seek": 0.5,
	"commit": 0.1, "record": 0.35, "leave": 0.6, "due": 0.15, "release": 0.6,
}

// part is the part of the world that serves a request.
func part(op string) string {
	for name, ops := range requests {
		if slices.Contains(ops, op) {
			return name
		}
	}
	panic("no part of the world serves " + op)
}

// Sites are all the ways in which a world goes wrong, sorted; [Result] counts
// under these names.
func Sites() []string {
	list := []string{
		"kill", "stop", "pause", "pause past the lease", "clock jump", "poisoned",
		"retry of all dead letters", "command to redrive",
		"lost insert", "fatal commit", "delayed commit", "late commit", "late commit that took effect", "gave up a commit under way",
	}
	for name, ops := range requests {
		list = append(list, "outage of the "+name, "request in an outage of the "+name)
		for _, op := range ops {
			list = append(list, lost.String()+" "+op, unanswered.String()+" "+op, "slow "+op)
		}
	}
	slices.Sort(list)
	return list
}
