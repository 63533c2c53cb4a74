//go:build linux

package attack

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

// Report is what came of an attack.
type Report struct {
	Plan       Plan
	Struck     map[Fault]int
	Fenced     int  // transactions that PostgreSQL was seen to refuse after a pause
	Namespaces bool // cables were those of network namespaces, else links of the proxy
	Dumps      int  // consumers that printed their stacks
	Lives      int  // of consumers
	HubLives   int

	Acknowledged int64 // records
	Events       int64 // in the hub: those, and what was sent again
	Rows         int64
	DeadLetters  int64
	Records      map[string]int // of the histories, by kind
	Doubled      int            // events with more than one effect or dead letter
	Lost         int            // with none
	Searched     searched

	// Findings are all that is wrong, empty after an attack that found nothing.
	Findings []string

	Attack, CatchUp, Took time.Duration
}

// Missing are the faults that have not struck as often as they were to.
func (r *Report) Missing() (list []string) {
	for _, f := range Faults {
		if r.Struck[f] < r.Plan.Strike[f] {
			list = append(list, fmt.Sprintf("%s: %d of %d", f, r.Struck[f], r.Plan.Strike[f]))
		}
	}
	if r.Fenced < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("transactions seen refused after a pause: %d of %d", r.Fenced, r.Plan.Fenced))
	}
	if told := r.Records[string(history.Fenced)]; told < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("refusals in the consumers' histories: %d of %d", told, r.Plan.Fenced))
	}
	return list
}

// String is the report as a table.
func (r *Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(what string, value any) { fmt.Fprintf(t, "%s\t%v\n", what, value) }
	row("seed", r.Plan.Seed)
	for _, f := range Faults {
		row(string(f), r.Struck[f])
	}
	cables := "network namespaces"
	if !r.Namespaces {
		cables = "none: no network namespaces here, links of the proxy took their place"
	}
	row("cables pulled were those of", cables)
	row("transactions refused after a pause, seen on the wire", r.Fenced)
	row("stacks printed (SIGQUIT)", r.Dumps)
	row("lives of consumers, of the hub", fmt.Sprintf("%d, %d", r.Lives, r.HubLives))
	row("records acknowledged", r.Acknowledged)
	row("events in the hub", r.Events)
	row("rows", r.Rows)
	row("dead letters", r.DeadLetters)
	row("events doubled", r.Doubled)
	row("events lost", r.Lost)
	for _, k := range []string{"claimed", "committed", "fenced", "unknown", "lost lease"} {
		row("histories: "+k, r.Records[k])
	}
	row("searched for secrets", fmt.Sprintf("%d files, %.1f MB", r.Searched.Files, float64(r.Searched.Bytes)/1e6))
	row("attack, catching up, all", fmt.Sprintf("%v, %v, %v", r.Attack.Round(time.Second), r.CatchUp.Round(time.Second), r.Took.Round(time.Second)))
	row("findings", len(r.Findings))
	t.Flush()
	return b.String()
}
