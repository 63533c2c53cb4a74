//go:build linux

package attack

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
)

// Report is the result of an attack.
type Report struct {
	Engine     string
	Plan       Plan
	Struck     map[Fault]int
	Fenced     int  // transactions that the database has refused after a pause
	Refused    int  // transactions that it has refused at any time
	Namespaces bool // unplugged cables were those of network namespaces; else traffic was blocked at the proxies
	Dumps      int  // consumers that printed their stacks on SIGQUIT
	Lives      int  // starts of consumers
	HubLives   int

	Acknowledged int64 // records
	Events       int64 // in the hub: the records, and those that were sent again
	Rows         int64
	DeadLetters  int64
	Records      map[string]int // of the histories, by kind
	Duplicated   int            // events with more than one effect or dead letter
	Lost         int            // with neither
	Searched     searched

	// Findings are the violations; the attack has passed if there are none.
	Findings []string

	Attack, CatchUp, Took time.Duration
}

// Missing returns the faults that have not struck as often as planned.
func (r *Report) Missing() (list []string) {
	for _, f := range Faults {
		if r.Struck[f] < r.Plan.Strike[f] {
			list = append(list, fmt.Sprintf("%s: %d of %d", f, r.Struck[f], r.Plan.Strike[f]))
		}
	}
	if r.Fenced < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("transactions refused after a pause: %d of %d", r.Fenced, r.Plan.Fenced))
	}
	if n := r.Records[string(history.Fenced)]; n < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("refusals in the consumers' histories: %d of %d", n, r.Plan.Fenced))
	}
	return list
}

// String is the report as a table.
func (r *Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(what string, value any) { fmt.Fprintf(t, "%s\t%v\n", what, value) }
	row("database", r.Engine)
	row("seed", r.Plan.Seed)
	for _, f := range Faults {
		row(string(f), r.Struck[f])
	}
	cables := "network namespaces"
	if !r.Namespaces {
		cables = "none: network namespaces are not available, traffic was blocked at the proxies instead"
	}
	row("unplugged cables of", cables)
	row("transactions refused by the fence, seen on the wire; after a pause", fmt.Sprintf("%d; %d", r.Refused, r.Fenced))
	row("stacks printed (SIGQUIT)", r.Dumps)
	row("starts of consumers, of the hub", fmt.Sprintf("%d, %d", r.Lives, r.HubLives))
	row("records acknowledged", r.Acknowledged)
	row("events in the hub", r.Events)
	row("rows", r.Rows)
	row("dead letters", r.DeadLetters)
	row("events duplicated", r.Duplicated)
	row("events lost", r.Lost)
	for _, k := range []string{"claimed", "committed", "fenced", "unknown", "lost lease"} {
		row("records in the histories: "+k, r.Records[k])
	}
	row("files searched for secrets", fmt.Sprintf("%d files, %.1f MB", r.Searched.Files, float64(r.Searched.Bytes)/1e6))
	row("time of the attack, of catching up, of all", fmt.Sprintf("%v, %v, %v", r.Attack.Round(time.Second), r.CatchUp.Round(time.Second), r.Took.Round(time.Second)))
	row("findings", len(r.Findings))
	t.Flush()
	return b.String()
}
