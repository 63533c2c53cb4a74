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
	Source       string
	Engine       string
	Plan         Plan
	Struck       map[Fault]int
	Fenced       int  // transactions that the database has refused after a pause
	Refused      int  // transactions that it has refused at any time
	Namespaces   bool // unplugged cables were those of network namespaces; else traffic was blocked at the proxies
	Dumps        int  // consumers that printed their stacks on SIGQUIT
	Lives        int  // starts of consumers
	SourceStarts int  // of the source's servers

	Acknowledged int64 // records
	Events       int64 // in the log: the records, and those that were sent again
	Rows         int64
	DeadLetters  int64
	Records      map[string]int // of the histories, by kind
	Duplicated   int            // events with more than one effect or dead letter
	Lost         int            // with neither
	Invented     int            // effects of what is no event
	Searched     searched

	// Findings are the violations; the attack has passed if there are none.
	Findings []string
	breached bool // one of them is about an event; see breach
	late     bool // the consumers did not catch up, so events without an effect may only be late
	slow     int  // the number of findings about programs that took too long: they come first

	details [][2]string // rows that the source adds
	lacking []string    // what the source has not shown

	Attack, CatchUp, Took time.Duration
}

// Broken reports whether a finding breaks a promise: an event is lost, has another effect than its
// own or one too many, or came out of order. Other findings may come from a machine that stands
// still.
func (r *Report) Broken() bool {
	return r.breached || !r.late && len(r.Findings) > r.slow
}

// count adds a finding of the check of events and effects.
func (r *Report) count(f history.Finding) {
	find := r.breach
	switch f.Fault {
	case history.Duplicated:
		r.Duplicated++
	case history.Invented:
		r.Invented++
	case history.Lost:
		r.Lost++
		if r.late { // it may only be late
			find = r.find
		}
	}
	find("%v", f)
}

// breach adds a finding about an event that is lost, has another effect than its own or one too
// many, or came out of order.
func (r *Report) breach(format string, args ...any) {
	r.breached = true
	r.find(format, args...)
}

func (r *Report) find(format string, args ...any) {
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// Missing returns the faults that could not strike as often as planned within the time for them.
func (r *Report) Missing() (list []string) {
	for _, f := range Faults {
		if r.Struck[f] < r.Plan.Strike[f] {
			list = append(list, fmt.Sprintf("%s: %d of %d", f, r.Struck[f], r.Plan.Strike[f]))
		}
	}
	if r.Fenced < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("transactions refused after a pause: %d of %d", r.Fenced, r.Plan.Fenced))
	}
	list = append(list, r.lacking...)
	if n := r.Records[string(history.Fenced)]; n < r.Plan.Fenced {
		list = append(list, fmt.Sprintf("refusals in the consumers' histories: %d of %d", n, r.Plan.Fenced))
	}
	return list
}

// detail adds a row.
func (r *Report) detail(what, format string, args ...any) {
	r.details = append(r.details, [2]string{what, fmt.Sprintf(format, args...)})
}

// lack adds something that the attack has not shown.
func (r *Report) lack(format string, args ...any) {
	r.lacking = append(r.lacking, fmt.Sprintf(format, args...))
}

// String is the report as a table.
func (r *Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(what string, value any) { fmt.Fprintf(t, "%s\t%v\n", what, value) }
	row("log", r.Source)
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
	row("starts of consumers, of the log's servers", fmt.Sprintf("%d, %d", r.Lives, r.SourceStarts))
	row("records acknowledged", r.Acknowledged)
	row("events in the log", r.Events)
	for _, d := range r.details {
		row(d[0], d[1])
	}
	row("rows", r.Rows)
	row("dead letters", r.DeadLetters)
	row("events duplicated", r.Duplicated)
	row("events lost", r.Lost)
	row("effects of what is no event", r.Invented)
	for _, k := range []string{"claimed", "committed", "fenced", "unknown", "lost lease"} {
		row("records in the histories: "+k, r.Records[k])
	}
	row("files searched for secrets", fmt.Sprintf("%d files, %.1f MB", r.Searched.Files, float64(r.Searched.Bytes)/1e6))
	row("time of the attack, of catching up, of all", fmt.Sprintf("%v, %v, %v", r.Attack.Round(time.Second), r.CatchUp.Round(time.Second), r.Took.Round(time.Second)))
	row("findings", len(r.Findings))
	t.Flush()
	return b.String()
}
