//go:build postgres && unix

package main

import (
	"io"
	"testing"
)

func TestTrialsOnPostgres(t *testing.T) {
	r, err := measureAll(t.Context(), smallest(1, "postgres/1000B/4|latency"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r, 6, 1)
	if len(r.Latency) != 2 {
		t.Fatalf("%d latencies", len(r.Latency))
	}
	for _, l := range r.Latency {
		for _, f := range l.Runs {
			if f.Enqueued.P50 <= 0 || f.Published.P50 <= 0 || f.Published.P99 < f.Published.P50 || f.Published.Max < f.Published.P99 {
				t.Errorf("%s: %+v", l.contender, f)
			}
		}
	}
}
