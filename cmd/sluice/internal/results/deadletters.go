// Package results prints what the commands find: as tables for operators, and as JSON for scripts.
package results

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/internal/humanize"
)

// DescribeDeadLetters returns dead letters as --json prints them.
func DescribeDeadLetters(letters []sluice.DeadLetter) []deadletters.JSON {
	list := make([]deadletters.JSON, len(letters))
	for i := range letters {
		list[i] = deadletters.Describe(&letters[i])
	}
	return list
}

// optional is a time in UTC, nil for the zero time.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// JSON prints v as indented JSON.
func JSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = fmt.Fprintln(w, string(text))
	return err
}

// DeadLetterTable prints dead letters as a table.
func DeadLetterTable(w io.Writer, letters []sluice.DeadLetter) error {
	if len(letters) == 0 {
		_, err := fmt.Fprintln(w, "no dead letters")
		return err
	}
	t := term.NewTable("ID", "PARTITION", "SEQUENCE", "KEY", "STATUS", "ATTEMPTS", "FAILED", "ERROR")
	for i := range letters {
		d := &letters[i]
		status := string(d.Status)
		if d.Status == sluice.StatusRetry && !d.NextAttempt.IsZero() {
			status += " at " + moment(d.NextAttempt)
		}
		t.Add(fmt.Sprint(d.ID), d.Event.Partition, fmt.Sprint(d.Event.Sequence), humanize.Shorten(d.Event.Key, 20), status,
			fmt.Sprint(d.Attempts), moment(d.FailedAt), humanize.Shorten(d.Error, 80))
	}
	_, err := t.WriteTo(w)
	return err
}

// moment formats a time in UTC, to the second.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// DeadLetterDetails prints dead letters with their events.
func DeadLetterDetails(w io.Writer, letters []sluice.DeadLetter) error {
	var b strings.Builder
	for i := range letters {
		l := deadletters.Describe(&letters[i])
		if i > 0 {
			b.WriteByte('\n')
		}
		line := func(name, value string) {
			if value != "" {
				// A value with line breaks must not look like lines of its own.
				fmt.Fprintf(&b, "%-12s %s\n", name, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 13)))
			}
		}
		line("id", fmt.Sprint(l.ID))
		line("status", string(l.Status))
		if l.NextAttempt != nil {
			line("retry at", moment(*l.NextAttempt))
		}
		line("partition", l.Partition)
		line("sequence", fmt.Sprint(l.Sequence))
		line("offset", l.Offset)
		line("incarnation", l.Incarnation)
		line("key", l.Key)
		if l.Enqueued != nil {
			line("enqueued", moment(*l.Enqueued))
		}
		line("failed", moment(l.FailedAt))
		line("attempts", fmt.Sprint(l.Attempts))
		line("error", l.Error)
		line("message id", l.MessageID)
		line("correlation", l.CorrelationID)
		line("content type", l.ContentType)
		for _, name := range slices.Sorted(maps.Keys(l.Properties)) {
			line("property", name+" = "+l.Properties[name])
		}
		switch {
		case l.Body != nil:
			line("body", *l.Body)
		case l.BodyBytes != nil:
			line("body", fmt.Sprintf("%d bytes of binary data: see --json", len(l.BodyBytes)))
		case !l.HasBody:
			line("body", "not stored: a retry reads the event from the hub or topic")
		}
	}
	_, err := fmt.Fprint(w, b.String())
	return err
}

// Marked prints how many dead letters were marked for a retry at a time; the zero time is now.
func Marked(w io.Writer, asJSON bool, marked int64, at time.Time) error {
	if asJSON {
		return JSON(w, struct {
			Marked int64      `json:"marked"`
			Time   *time.Time `json:"at,omitempty"`
		}{marked, optional(at)})
	}
	text := humanize.Plural(marked, "dead letter", "dead letters") + " marked for a retry"
	switch {
	case marked == 0:
		text = "no dead letters to retry"
	case !at.IsZero():
		text += " at " + moment(at) + " by the owners of their partitions"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// RetryOutcome prints the outcome of retries. It names the first few dead letters that failed
// again.
func RetryOutcome(w io.Writer, asJSON bool, so deadletters.Outcome) error {
	if asJSON {
		return JSON(w, struct {
			Applied   int                `json:"applied"`
			Discarded int                `json:"discarded"`
			Failed    []deadletters.JSON `json:"failed"`
			Waiting   []deadletters.JSON `json:"waiting"`
		}{so.Applied, so.Discarded, DescribeDeadLetters(so.Failed), DescribeDeadLetters(so.Waiting)})
	}
	const named = 10
	for i := range so.Failed[:min(len(so.Failed), named)] {
		d := &so.Failed[i]
		fmt.Fprintf(w, "%d failed again (partition %s, sequence %d): %s\n", d.ID, d.Event.Partition, d.Event.Sequence, humanize.Shorten(d.Error, 200))
	}
	if more := len(so.Failed) - named; more > 0 {
		fmt.Fprintf(w, "and %s more\n", humanize.Count(more))
	}
	text := fmt.Sprintf("%s applied, %s failed again", humanize.Count(so.Applied), humanize.Count(len(so.Failed)))
	if so.Discarded > 0 {
		text += fmt.Sprintf(", %s discarded in the meantime", humanize.Count(so.Discarded))
	}
	if len(so.Waiting) > 0 {
		text += fmt.Sprintf(", %s waiting", humanize.Count(len(so.Waiting)))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
