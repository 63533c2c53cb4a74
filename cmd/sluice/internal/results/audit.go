package results

import (
	"fmt"
	"io"
	"maps"
	"slices"
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
	table := term.NewTable("PARTITION", "HELD", "BEGAN", "CHECKPOINT", "WRITTEN", "DEAD LETTERS", "WAITING", "LOST", "DUPLICATED", "EXPIRED", "STRAY")
	for i := range r.Partitions {
		p := &r.Partitions[i]
		checkpoint := "none"
		if p.Checkpoint >= 0 {
			checkpoint = humanize.Count(p.Checkpoint)
		}
		cells := []string{p.ID, humanize.Count(p.Held), began(p), checkpoint, humanize.Count(p.Written), humanize.Count(p.DeadLetters), humanize.Count(p.Waiting)}
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
		fmt.Fprintf(&b, "%s before the beginning that the checkpoint records, and not checked.\n", humanize.Plural(n, "event is", "events are"))
	}
	if n := r.Total.Earlier; n > 0 {
		fmt.Fprintf(&b, "%s of events before the beginning.\n", humanize.Plural(n, effect+" or dead letter is", effect+"s or dead letters are"))
	}
	if n := r.Total.Removed; n > 0 {
		fmt.Fprintf(&b, "%s from the beginning on, and not checked.\n", humanize.Plural(n, "event more was removed by retention", "events more were removed by retention"))
	}
	if n := r.Total.Deduplicated; n > 0 {
		fmt.Fprintf(&b, "%s skipped by deduplication.\n", humanize.Plural(n, "message was", "messages were"))
	}
	if n := r.Total.Unmatched; n > 0 {
		fmt.Fprintf(&b, "%s no earlier message with the same id: their emitter's watermark is the only reason. If the emitting stage has not redriven them, check who may send to it (docs/security.md).\n", humanize.Plural(n, "of these has", "of these have"))
	}
	if n := r.Total.Unmatchable; n > 0 {
		fmt.Fprintf(&b, "%s not compared with earlier ones: there are more ids than the audit remembers.\n", humanize.Plural(n, "of these was", "of these were"))
	}
	if r.Effect == "" {
		for _, why := range slices.Sorted(maps.Keys(r.Total.UnclearWhy)) {
			fmt.Fprintf(&b, "%s no row and no dead letter: %s.\n", humanize.Plural(r.Total.UnclearWhy[why], "event has", "events have"), why)
		}
	}
	for i := range r.Partitions {
		if p := &r.Partitions[i]; p.Doubt != "" {
			fmt.Fprintf(&b, "Partition %s %s.\n", p.ID, p.Doubt)
		}
	}
	if n := r.Total.Ahead; n > 0 {
		fmt.Fprintf(&b, "%s %s.\n", humanize.Plural(n, "event has", "events have"), ahead)
	}
	rate := float64(r.Total.Held) / max(r.Took.Seconds(), 0.001)
	fmt.Fprintf(&b, "%s\nRead in %s, %s events/s.\n", r.Headline(), humanize.Span(r.Took), humanize.Count(int64(rate)))
	_, err := io.WriteString(out, b.String())
	return err
}

// began says where a partition began: the first event, and what chose it.
func began(p *audit.Partition) string {
	if !p.Began.Known() {
		return "unknown"
	}
	return fmt.Sprintf("%s %s", humanize.Count(max(p.Began.After+1, 0)), p.Began.How)
}
