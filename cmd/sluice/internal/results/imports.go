package results

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/humanize"
)

// ImportTable prints imported checkpoints as a table. Missing are the partitions without one.
func ImportTable(w io.Writer, found []azurecheckpoints.Checkpoint, moves []checkpoint.Move, missing []string, planned bool) error {
	headings := []string{"PARTITION", "LAST DONE", "OFFSET", "CHECKPOINT HERE"}
	blobs := len(found) > 0 && found[0].Blob != "" // and not the rows of a table
	if blobs {
		headings = append(headings, "LEFT BEHIND", "BLOB")
	}
	table := term.NewTable(headings...)
	for i, m := range moves {
		c := found[i]
		last, offset, here := "?", "-", m.To.String()
		switch {
		case c.Origin:
			last = "none"
		case c.Sequence >= 0:
			last = fmt.Sprint(c.Sequence)
		}
		if c.Offset != "" {
			offset = humanize.Shorten(c.Offset, 40)
		}
		if m.Begun {
			here = m.From.String() + " → " + here
		}
		if m.Fenced != "" {
			here += " (" + m.Fenced + " is fenced)"
		}
		cells := []string{m.Partition, last, offset, here}
		if blobs {
			cells = append(cells, c.Updated.Format(time.DateTime), humanize.Shorten(c.Blob, 200))
		}
		table.Add(cells...)
	}
	if _, err := table.WriteTo(w); err != nil {
		return err
	}
	verb := "set"
	if planned {
		verb = "would be set; nothing was changed"
	}
	_, err := fmt.Fprintf(w, "%s %s\n", humanize.Plural(len(moves), "checkpoint", "checkpoints"), verb)
	if err == nil && len(missing) > 0 {
		noun := "partition"
		if len(missing) > 1 {
			noun = "partitions"
		}
		_, err = fmt.Fprintf(w, "no checkpoint was found for %s %s: reading starts there where the pipeline says\n", noun, strings.Join(missing, ", "))
	}
	return err
}

// imported is an import as --json prints it.
type imported struct {
	move
	Blob     string     `json:"blob,omitempty"` // not of a table
	Sequence *int64     `json:"sequence"`       // null if only the offset is known
	Offset   string     `json:"offset,omitempty"`
	Left     *time.Time `json:"left,omitempty"`
}

// DescribeImports returns imports as --json prints them.
func DescribeImports(found []azurecheckpoints.Checkpoint, moves []checkpoint.Move) []imported {
	list := make([]imported, len(moves))
	for i, m := range DescribeMoves(moves) {
		list[i] = imported{move: m, Blob: found[i].Blob, Offset: found[i].Offset, Left: optional(found[i].Updated)}
		if found[i].Sequence >= 0 {
			list[i].Sequence = &found[i].Sequence
		}
	}
	return list
}
