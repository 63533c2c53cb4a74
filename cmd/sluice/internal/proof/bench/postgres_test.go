//go:build unix

package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestTrialsOnPostgres(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	r, err := measureAll(t.Context(), smallest(1, "postgres/1000B/4"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, 5, 1)
}

func TestLatencyOnPostgres(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	o := &latencyBench{runs: 1, rates: []int{1000}, live: 200 * time.Millisecond, partitions: []int{2}, idle: time.Second, only: regexp.MustCompile("")}
	r, err := o.measure(t.Context(), &databases{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rates) != 2 || len(r.Idle) != 2 {
		t.Fatalf("%d results of rates, %d of idle processes", len(r.Rates), len(r.Idle))
	}
	for _, of := range r.Rates {
		for _, run := range of.Runs {
			// 2000 events of the warm-up do not count.
			if p := run.Published; p.P50 <= 0 || p.P99 < p.P50 || p.P999 < p.P99 || p.Max < p.P999 || p.Events != 200 || run.Reached < 100 {
				t.Errorf("%s: %+v", of.contender, run)
			}
		}
	}
	for _, of := range r.Idle {
		for _, run := range of.Runs {
			// The loop by hand may sleep for all of the second; Sluice asks its stores.
			asleep := run.CPU == 0 || run.Wakeups == 0
			if run.CPU > 200 || run.Resident < 1e6 || asleep && of.Name == sluiceContender {
				t.Errorf("%s: %+v", of.contender, run)
			}
		}
	}
	var out bytes.Buffer
	r.print(&out)
	if text := out.String(); strings.Count(text, "\n| 1.0k | ") != 2 || strings.Count(text, "\n| 2 | ") != 2 {
		t.Error(text)
	}
}

func TestWritingOnPostgres(t *testing.T) {
	need.Postgres(t)
	need.RealTime(t)
	db := &databases{}
	defer db.close()
	writingOn(t, db, "postgres")
}
