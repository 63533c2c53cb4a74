package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// writeDecisions writes records as a table or as lines of JSON.
func writeDecisions(w io.Writer, records []autoscale.Record, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		for _, r := range records {
			if err := encoder.Encode(r); err != nil {
				return fmt.Errorf("write decisions: %w", err)
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tDECISION\tINSTANCES\tMETRICS\tREASON")
	for _, r := range records {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.Time.UTC().Format(time.RFC3339), r.Kind, change(r), metricStats(r), r.Reason)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write decisions: %w", err)
	}
	return nil
}

func change(r autoscale.Record) string {
	if r.Kind == autoscale.Up || r.Kind == autoscale.Down {
		return fmt.Sprintf("%d → %d", r.Instances, r.Wanted)
	}
	return fmt.Sprint(r.Instances)
}

// metricStats returns each metric's newest value, average, maximum and number of
// values.
func metricStats(r autoscale.Record) string {
	list := make([]string, len(r.Stats))
	for i, f := range r.Stats {
		if f.Points == 0 {
			list[i] = f.Metric + " –"
			continue
		}
		list[i] = fmt.Sprintf("%s %s (avg %s, max %s of %d)", f.Metric, autoscale.FormatNumber(f.Last), autoscale.FormatNumber(f.Average), autoscale.FormatNumber(f.Max), f.Points)
	}
	return strings.Join(list, "; ")
}
