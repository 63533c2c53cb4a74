package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/results"
)

// hostile is what a producer may write to act on the terminal of an operator: a title, a
// cleared screen, the clipboard, the same with 8-bit controls, reversed text, another line.
const hostile = "a\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\u009b2J\u0090x\u009c\u202egnp\u2028\u007f\r\nid           7\tz\x9b"

// A command that fails after it has set some checkpoints says so.
func TestErrorAfterOthers(t *testing.T) {
	failed := errors.New("no answer")
	for n, want := range map[int]string{
		0: "no answer",
		1: "no answer (1 checkpoint was set before: see `sluice checkpoints list`)",
		7: "no answer (7 checkpoints were set before: see `sluice checkpoints list`)",
	} {
		if err := afterOthers(failed, n); err.Error() != want || !errors.Is(err, failed) {
			t.Errorf("after %d: %v, want %s", n, err, want)
		}
	}
}

// What producers send reaches the operator's terminal as text only.
func TestOutputEscapesControls(t *testing.T) {
	d := sluice.DeadLetter{ID: 1, Status: sluice.StatusDead, Incarnation: hostile, Error: hostile, HasBody: true, Event: sluice.Event{
		Partition: hostile, Key: hostile, MessageID: hostile, CorrelationID: hostile, ContentType: hostile, Offset: hostile,
		Properties: map[string]any{hostile: hostile}, Body: []byte(strings.ToValidUTF8(hostile, "")),
	}}
	letters := []sluice.DeadLetter{d}
	for name, print := range map[string]func(io.Writer) error{
		"show":        func(w io.Writer) error { return results.DeadLetterDetails(w, letters) },
		"list":        func(w io.Writer) error { return results.DeadLetterTable(w, letters) },
		"show --json": func(w io.Writer) error { return results.JSON(w, results.DescribeDeadLetters(letters)) },
		"in parts": func(w io.Writer) error {
			for _, c := range []byte(hostile + "é") {
				if _, err := w.Write([]byte{c}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		var got bytes.Buffer
		if err := print(&output{writer: &got}); err != nil {
			t.Fatal(err)
		}
		wantText(t, name, got.String())
		if name == "show" && strings.Contains(got.String(), "\nid           7") {
			t.Errorf("a value makes a line of its own:\n%s", got.String())
		}
		if name == "in parts" && !strings.HasSuffix(got.String(), "é") {
			t.Errorf("%q lost a letter", got.String())
		}
		if name != "show --json" {
			continue
		}
		var back []struct {
			Body string `json:"body"`
		}
		if err := json.Unmarshal(got.Bytes(), &back); err != nil || back[0].Body != string(d.Event.Body) {
			t.Errorf("%v: the body is %q, want %q", err, back[0].Body, d.Event.Body)
		}
	}
}

// wantText fails the test if a text can act on a terminal.
func wantText(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' {
			t.Errorf("%s writes %q", what, fmt.Sprintf("%c", r))
		}
	}
}
