//go:build unix

package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestWritingOnSQLite(t *testing.T) {
	need.RealTime(t)
	writingOn(t, onFiles(t), "sqlite")
}

// writingOn checks that each contender writes each event once, and that the table has all of them.
func writingOn(t *testing.T, db *databases, kind string) {
	for _, partitions := range []int{1, maxPartitions} {
		r, o := newReport(), smallest(2, "")
		o.batch = 600 // does not divide the events
		wanted := slices.DeleteFunc(writingTrials(200, partitions), func(t trial) bool { return t.Database != kind })
		if err := measureHub(t.Context(), o, db, r, wanted, io.Discard); err != nil {
			t.Fatal(err)
		}
		if len(r.Results) != len(writingContenders) {
			t.Fatalf("%d results", len(r.Results))
		}
		for _, res := range r.Results {
			for _, run := range res.Runs {
				if run.PerSecond <= 0 || run.ConsumerCPU <= 0 || run.Batch <= 1 || run.Batch > float64(o.batch) {
					t.Errorf("%s: %+v", res.contender, run)
				}
			}
		}
		var out bytes.Buffer
		r.printWriting(&out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "| "+kind+" | 200 B |") || strings.Count(last, "**") != 2*(len(writingContenders)-1) {
			t.Errorf("the table ends with %s", last)
		}
	}
}
