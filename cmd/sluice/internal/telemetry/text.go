package telemetry

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-go/sluice/internal/humanize"
)

// WriteText writes the days as a table, and the verdict in words.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %12s %14s %8s %14s\n", "DAY", "ITEMS", "RAW", "RATE", "WEIGHTED")
	for _, d := range r.Days {
		fmt.Fprintf(&b, "%-14s %12s %14s %6.1f %% %14s\n", d.Start.Format("Mon 2006-01-02"),
			humanize.Count(d.Items), humanize.Count(int64(d.Raw)), d.Rate(), humanize.Count(int64(d.Weighted)))
	}
	b.WriteByte('\n')
	for _, sentence := range r.Explain() {
		b.WriteString(sentence + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
