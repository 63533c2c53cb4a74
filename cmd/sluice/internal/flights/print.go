package flights

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-go/sluice/internal/humanize"
)

// Summary is the text at the end of a demo: counts, then sentences.
type Summary struct{ strings.Builder }

// Count adds a line with a number.
func (s *Summary) Count(n int64, what string) {
	fmt.Fprintf(s, "%12s  %s\n", humanize.Count(n), what)
}

// Print writes the summary below an empty line.
func (s *Summary) Print(w io.Writer) error {
	_, err := io.WriteString(w, "\n"+s.String())
	return err
}

// Print prints the audit of [Demo]. First and took are the times from the start of the process to
// the first commit and to the last event. Retry says how to retry the dead letters.
func (a *Audit) Print(w io.Writer, first, took time.Duration, retry string) error {
	var s Summary
	s.Count(a.Sent, "events in the "+a.Noun)
	s.Count(a.Written, "rows in the table flights")
	s.Count(a.DeadLetters, "dead letters")
	if a.Waiting > 0 {
		s.Count(a.Waiting, "not processed yet: start the demo again to continue")
	}
	if a.Exact() {
		fmt.Fprintf(&s, "\n%s = %s + %s, each exactly once: checked by partition and sequence number.\n",
			humanize.Count(a.Sent), humanize.Count(a.Written), humanize.Count(a.DeadLetters))
	}
	if first > 0 {
		fmt.Fprintf(&s, "The first event was committed after %s, the last one after %s.\n", humanize.Span(first), humanize.Span(took))
	}
	if a.DeadLetters > 0 {
		s.WriteString(retry)
	}
	return s.Print(w)
}
