package results

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/humanize"
)

// Move is the line that says what a move does, or would do if it is only planned.
func Move(m checkpoint.Move, planned bool) string {
	from := "no checkpoint"
	if m.Begun {
		from = m.From.String()
	}
	var parts []string
	if m.Recreated {
		parts = append(parts, "the hub or topic was recreated in the meantime")
	}
	if m.Fenced != "" {
		parts = append(parts, m.Fenced+" is fenced")
	}
	switch {
	case m.Repeated > 0:
		parts = append(parts, humanize.Plural(m.Repeated, "event is repeated", "events are repeated"))
		switch {
		case m.DeadLetters == 0 || m.AtLeastOnce:
		case m.InBatches:
			parts = append(parts, humanize.Plural(m.DeadLetters, "of these is a dead letter, which stays", "of these are dead letters, which stay"))
		default:
			parts = append(parts, humanize.Plural(m.DeadLetters, "dead letter of these is replaced by the outcome", "dead letters of these are replaced by the outcome"))
		}
		if m.Discarded > 0 && !m.AtLeastOnce {
			parts = append(parts, humanize.Plural(m.Discarded, "of these was discarded and is handled again", "of these were discarded and are handled again"))
		}
	case m.Skipped > 0:
		parts = append(parts, humanize.Plural(m.Skipped, "event is skipped", "events are skipped"))
	case m.DeadLetters+m.Discarded == 0:
		parts = append(parts, "nothing is repeated or skipped")
	}
	if m.DeadLetters > 0 && m.AtLeastOnce {
		parts = append(parts, humanize.Plural(m.DeadLetters, "dead letter is retried", "dead letters are retried"))
	}
	if m.Discarded > 0 && m.AtLeastOnce {
		parts = append(parts, humanize.Plural(m.Discarded, "event was discarded and is not repeated", "events were discarded and are not repeated"))
	}
	text := fmt.Sprintf("partition %s: %s → %s: %s", m.Partition, from, m.To, strings.Join(parts, ", "))
	if planned {
		text = "would set " + text
	}
	return text
}

// row is a [checkpoint.Row] as --json prints it.
type row struct {
	Partition      string     `json:"partition"`
	Position       *int64     `json:"position"` // null if there is no checkpoint
	End            *int64     `json:"end"`      // null if the hub cannot be reached
	Lag            *int64     `json:"lag"`      // likewise
	Owner          string     `json:"owner,omitempty"`
	LeaseRemaining float64    `json:"lease_remaining_seconds"`
	Epoch          int64      `json:"epoch"`
	DeadLetters    int        `json:"dead_letters"`
	Recreated      bool       `json:"recreated"`
	Updated        *time.Time `json:"updated,omitempty"`
}

// DescribeCheckpoints returns rows as --json prints them.
func DescribeCheckpoints(rows []checkpoint.Row) []row {
	list := make([]row, len(rows))
	for i, r := range rows {
		list[i] = row{
			Partition: r.Partition, Owner: r.Owner, LeaseRemaining: r.LeaseLeft.Seconds(), Epoch: r.Epoch, DeadLetters: r.DeadLetters,
			Recreated: r.Recreated, Updated: optional(r.Updated),
		}
		if r.Begun {
			list[i].Position = &rows[i].Position.Sequence
		}
		if r.Lag >= 0 {
			list[i].End, list[i].Lag = &rows[i].End, &rows[i].Lag
		}
	}
	return list
}

// CheckpointTable prints checkpoints as a table.
func CheckpointTable(w io.Writer, rows []checkpoint.Row) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no checkpoints")
		return err
	}
	t := term.NewTable("PARTITION", "POSITION", "LAG", "DEAD LETTERS", "EPOCH", "LEASE", "OWNER")
	for _, r := range rows {
		position, lag, lease, owner := "-", "?", "-", "-"
		if r.Begun {
			position = r.Position.String()
		}
		if r.Recreated {
			position += " (recreated)"
		}
		if r.Lag >= 0 {
			lag = humanize.Count(r.Lag)
		}
		if r.Owner != "" {
			lease, owner = humanize.Span(r.LeaseLeft.Truncate(100*time.Millisecond)), r.Owner
		}
		t.Add(r.Partition, position, lag, humanize.Count(r.DeadLetters), fmt.Sprint(r.Epoch), lease, owner)
	}
	_, err := t.WriteTo(w)
	return err
}

// move is a [checkpoint.Move] as --json prints it.
type move struct {
	Partition string `json:"partition"`
	From      *int64 `json:"from"` // null if there was no checkpoint
	To        int64  `json:"to"`
	Repeated  int64  `json:"repeated"`
	// DeadLetters are events between to and from that are dead letters. Under at-least-once
	// delivery they are retried and not among the repeated ones.
	DeadLetters int64  `json:"dead_letters"`
	Discarded   int64  `json:"discarded"`
	Skipped     int64  `json:"skipped"`
	Recreated   bool   `json:"recreated"`
	Fenced      string `json:"fenced,omitempty"`
	Epoch       int64  `json:"epoch,omitempty"`
}

// DescribeMoves returns moves as --json prints them.
func DescribeMoves(moves []checkpoint.Move) []move {
	list := make([]move, len(moves))
	for i, m := range moves {
		list[i] = move{Partition: m.Partition, To: m.To.Sequence, Repeated: m.Repeated, DeadLetters: m.DeadLetters, Discarded: m.Discarded, Skipped: m.Skipped, Recreated: m.Recreated, Fenced: m.Fenced, Epoch: m.Epoch}
		if m.Begun {
			list[i].From = &moves[i].From.Sequence
		}
	}
	return list
}
