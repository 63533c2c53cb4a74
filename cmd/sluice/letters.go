package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/internal/humanize"
)

// letter is a dead letter as --json prints it.
type letter struct {
	ID            int64                   `json:"id"`
	Status        sluice.DeadLetterStatus `json:"status"`
	Partition     string                  `json:"partition"`
	Sequence      int64                   `json:"sequence"`
	Offset        string                  `json:"offset,omitempty"`
	Incarnation   string                  `json:"incarnation"`
	Key           string                  `json:"key,omitempty"`
	Enqueued      *time.Time              `json:"enqueued,omitempty"`
	FailedAt      time.Time               `json:"failed_at"`
	NextAttempt   *time.Time              `json:"next_attempt,omitempty"`
	Attempts      int                     `json:"attempts"`
	Error         string                  `json:"error"`
	MessageID     string                  `json:"message_id,omitempty"`
	CorrelationID string                  `json:"correlation_id,omitempty"`
	ContentType   string                  `json:"content_type,omitempty"`
	Properties    map[string]string       `json:"properties,omitempty"`
	HasBody       bool                    `json:"has_body"`
	Body          *string                 `json:"body,omitempty"`
	BodyBytes     []byte                  `json:"body_base64,omitempty"` // where it is not text
}

func describeAll(letters []sluice.DeadLetter) []letter {
	list := make([]letter, len(letters))
	for i := range letters {
		list[i] = describe(&letters[i])
	}
	return list
}

func describe(d *sluice.DeadLetter) letter {
	e := &d.Event
	l := letter{
		ID: d.ID, Status: d.Status, Partition: e.Partition, Sequence: e.Sequence, Offset: e.Offset, Incarnation: d.Incarnation, Key: e.Key,
		Enqueued: stated(e.Enqueued), FailedAt: d.FailedAt.UTC(), NextAttempt: stated(d.NextAttempt), Attempts: d.Attempts, Error: d.Error,
		MessageID: e.MessageID, CorrelationID: e.CorrelationID, ContentType: e.ContentType, HasBody: d.HasBody,
	}
	for name, value := range e.Properties {
		if l.Properties == nil {
			l.Properties = make(map[string]string)
		}
		l.Properties[name] = fmt.Sprint(value)
	}
	switch {
	case e.Body == nil:
	case utf8.Valid(e.Body):
		text := string(e.Body)
		l.Body = &text
	default:
		l.BodyBytes = e.Body
	}
	return l
}

func stated(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *app) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = fmt.Fprintln(a.out, string(text))
	return err
}

// printLetters prints a table for people.
func (a *app) printLetters(letters []sluice.DeadLetter) error {
	if len(letters) == 0 {
		_, err := fmt.Fprintln(a.out, "no dead letters")
		return err
	}
	t := term.NewTable("ID", "PARTITION", "SEQUENCE", "KEY", "STATUS", "ATTEMPTS", "FAILED", "ERROR")
	for i := range letters {
		d := &letters[i]
		status := string(d.Status)
		if d.Status == sluice.StatusRedrive && !d.NextAttempt.IsZero() {
			status += " at " + moment(d.NextAttempt)
		}
		t.Add(fmt.Sprint(d.ID), d.Event.Partition, fmt.Sprint(d.Event.Sequence), humanize.Shorten(d.Event.Key, 20), status,
			fmt.Sprint(d.Attempts), moment(d.FailedAt), humanize.Shorten(d.Error, 80))
	}
	_, err := t.WriteTo(a.out)
	return err
}

// moment writes a time as short as it is clear.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// printWhole prints dead letters with all that is known of them.
func (a *app) printWhole(letters []sluice.DeadLetter) error {
	var b strings.Builder
	for i := range letters {
		l := describe(&letters[i])
		if i > 0 {
			b.WriteByte('\n')
		}
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "%-12s %s\n", name, value)
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
			line("body", fmt.Sprintf("%d bytes that are no text: see --json", len(l.BodyBytes)))
		case !l.HasBody:
			line("body", "not stored: a retry reads it from the hub")
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func (a *app) printMarked(r *retryFlags, marked int64, at time.Time) error {
	if r.json {
		return a.printJSON(struct {
			Marked int64      `json:"marked"`
			At     *time.Time `json:"at,omitempty"`
		}{marked, stated(at)})
	}
	text := humanize.Plural(marked, "dead letter", "dead letters") + " marked for a retry"
	switch {
	case marked == 0:
		text = "no dead letters to retry"
	case !at.IsZero():
		text += " at " + moment(at) + " by the owners of their partitions"
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// printOutcome prints what has become of a retry; the first few that failed
// again are named.
func (a *app) printOutcome(r *retryFlags, so deadletters.Outcome) error {
	if r.json {
		return a.printJSON(struct {
			Applied   int      `json:"applied"`
			Discarded int      `json:"discarded"`
			Failed    []letter `json:"failed"`
			Waiting   []letter `json:"waiting"`
		}{so.Applied, so.Discarded, describeAll(so.Failed), describeAll(so.Waiting)})
	}
	const named = 10
	for i := range so.Failed[:min(len(so.Failed), named)] {
		d := &so.Failed[i]
		fmt.Fprintf(a.out, "%d failed again (partition %s, sequence %d): %s\n", d.ID, d.Event.Partition, d.Event.Sequence, humanize.Shorten(d.Error, 200))
	}
	if more := len(so.Failed) - named; more > 0 {
		fmt.Fprintf(a.out, "and %s more\n", humanize.Count(more))
	}
	text := fmt.Sprintf("%s applied, %s failed again", humanize.Count(so.Applied), humanize.Count(len(so.Failed)))
	if so.Discarded > 0 {
		text += fmt.Sprintf(", %s discarded meanwhile", humanize.Count(so.Discarded))
	}
	if len(so.Waiting) > 0 {
		text += fmt.Sprintf(", %s waiting", humanize.Count(len(so.Waiting)))
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
