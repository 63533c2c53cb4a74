package results

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
)

// shownFaults is how many runs of faulty events are printed. The JSON and the HTML page have all.
const shownFaults = 50

// Audit prints the report of an audit.
func Audit(out io.Writer, r *audit.Report) error {
	effect, ahead := "row", "a row or a dead letter beyond the checkpoint, and will be processed again"
	if r.Effect != "" {
		effect, ahead = "effect", "an effect beyond the checkpoint, which was read first: written since, or to be processed again"
	}
	table := term.NewTable("PARTITION", "HELD", "CHECKPOINT", "WRITTEN", "DEAD LETTERS", "WAITING", "LOST", "DUPLICATED", "EXPIRED", "STRAY")
	for i := range r.Partitions {
		p := &r.Partitions[i]
		checkpoint := "none"
		if p.Checkpoint >= 0 {
			checkpoint = humanize.Count(p.Checkpoint)
		}
		cells := []string{p.ID, humanize.Count(p.Held), checkpoint, humanize.Count(p.Written), humanize.Count(p.DeadLetters), humanize.Count(p.Waiting)}
		for _, kind := range audit.FaultKinds {
			cells = append(cells, humanize.Count(p.Faults[kind]))
		}
		table.Add(cells...)
	}
	var b strings.Builder
	if _, err := table.WriteTo(&b); err != nil {
		return err
	}
	b.WriteByte('\n')
	for i, f := range r.Faults {
		if i == shownFaults {
			fmt.Fprintf(&b, "and %s more: see --json or --html\n", humanize.Plural(len(r.Faults)-i, "run of events", "runs of events"))
			break
		}
		fmt.Fprintln(&b, f)
	}
	if len(r.Faults) > 0 {
		b.WriteByte('\n')
	}
	if r.Total.Faults[audit.Stray] > 0 {
		fmt.Fprintln(&b, "Stray rows can belong to an earlier hub or topic of the same name: a row does not say which one it comes from.")
		if r.Topic.Sparse {
			fmt.Fprintln(&b, "In a topic of Kafka they can also be those of transactions that were aborted, written with isolation: read_uncommitted.")
		}
	}
	if n := r.Total.Skipped; n > 0 {
		fmt.Fprintf(&b, "%s before the first %s or dead letter: the pipeline does not start at the earliest event.\n", humanize.Plural(n, "event is", "events are"), effect)
	}
	if n := r.Total.Deduplicated; n > 0 {
		fmt.Fprintf(&b, "%s skipped by deduplication.\n", humanize.Plural(n, "message was", "messages were"))
	}
	if n := r.Total.Unmatched; n > 0 {
		fmt.Fprintf(&b, "%s no earlier message with the same id: their emitter's watermark is the only reason. If the emitting stage has not redriven them, check who may send to it (docs/security.md).\n", humanize.Plural(n, "of these has", "of these have"))
	}
	if n := r.Total.Unclear; n > 0 && r.Effect == "" {
		fmt.Fprintf(&b, "%s no row and no dead letter, and may repeat an event that has passed retention, or has passed it during the audit.\n", humanize.Plural(n, "message has", "messages have"))
	}
	if n := r.Total.Ahead; n > 0 {
		fmt.Fprintf(&b, "%s %s.\n", humanize.Plural(n, "event has", "events have"), ahead)
	}
	rate := float64(r.Total.Held) / max(r.Took.Seconds(), 0.001)
	fmt.Fprintf(&b, "%s\nRead in %s, %s events/s.\n", r.Headline(), humanize.Span(r.Took), humanize.Count(int64(rate)))
	_, err := io.WriteString(out, b.String())
	return err
}
