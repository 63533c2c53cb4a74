//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// The tests start this test binary as their child processes.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(roleVariable); ok {
		main()
		return
	}
	os.Exit(m.Run())
}

func smallest(runs int, only string) options {
	return options{runs: runs, events: 2 * eventsPerBatch * maxPartitions, only: regexp.MustCompile(only)}
}

func onFiles(t *testing.T) *databases {
	return &databases{servers: map[string]server{"sqlite": files{t.TempDir()}}}
}

func TestTrialOnSQLite(t *testing.T) {
	need.RealTime(t)
	db := onFiles(t)
	r := newReport()
	wanted := slices.DeleteFunc(trials(200, 1), func(t trial) bool { return t.Database != "sqlite" && t.Database != noDatabase })
	if err := measureHub(t.Context(), smallest(2, ""), db, r, wanted, io.Discard); err != nil {
		t.Fatal(err)
	}
	check(t, r, 5, 2)
}

// check checks that a report is complete.
func check(t *testing.T, r *report, results, runs int) {
	t.Helper()
	if len(r.Results) != results {
		t.Fatalf("%d results where %d should be", len(r.Results), results)
	}
	for _, res := range r.Results {
		if len(res.Runs) != runs || res.PerSecond <= 0 || (res.Name == sluiceContender || res.Name == observedContender) != (res.Ratio > 0) {
			t.Errorf("%s, %s: %d runs, %v a second, ratio %v", res.trial, res.contender, len(res.Runs), res.PerSecond, res.Ratio)
		}
		for _, run := range res.Runs {
			if run.CPU <= 0 || run.PeakRSS < 1e6 || run.PeakHeap < 1e6 || run.Allocs <= 0 || run.Batch <= 1 {
				t.Errorf("%s, %s: %+v", res.trial, res.contender, run)
			}
		}
	}
	var out bytes.Buffer
	r.print(&out)
	if n := strings.Count(out.String(), "B | "); n < results {
		t.Errorf("the table has %d rows for %d results:\n%s", n, results, &out)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestRunThatLosesRows(t *testing.T) {
	db := onFiles(t)
	d, err := db.fresh(t.Context(), "sqlite", contender{Name: handContender})
	if err != nil {
		t.Fatal(err)
	}
	defer d.drop()
	if _, err := d.db.Exec(`INSERT INTO readings (hub_partition, sequence_number) VALUES ('0', 1), ('0', 2), ('0', 2)`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 3, 4} {
		if err := d.hasRows(t.Context(), want); err == nil {
			t.Errorf("2 events in 3 rows are accepted as %d events", want)
		}
	}
	if _, err := d.db.Exec(`UPDATE readings SET hub_partition = rowid`); err != nil {
		t.Fatal(err)
	}
	if err := d.hasRows(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

func TestReadingHasItsSize(t *testing.T) {
	now := time.Now()
	for _, size := range []int{200, 1000} {
		body := reading(1234567, size, now)
		var r record
		if err := json.Unmarshal(body, &r); err != nil || len(body) != size || r.Device != "gauge-4567" || r.Distance != 667 {
			t.Errorf("%d bytes: %d, %+v, %v", size, len(body), r, err)
		}
		if at, err := published(body); err != nil || now.Sub(at).Abs() > time.Microsecond {
			t.Errorf("published %v, not %v: %v", at, now, err)
		}
	}
}

func TestSpread(t *testing.T) {
	var list []time.Duration
	for i := range 1000 {
		list = append(list, time.Duration(999-i)*time.Millisecond)
	}
	if s := spreadOf(list); s != (spread{500, 990, 999, 999, 1000}) {
		t.Error(s)
	}
	if s := spreadOf(nil); s != (spread{}) {
		t.Error(s)
	}
}

func TestChildThatFails(t *testing.T) {
	need.RealTime(t)
	c, err := spawn(context.Background(), consumerRole, &job{Contender: handContender, Hub: "no connection string", Partitions: 1, Events: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = nil
	if err := c.receive(new(string)); err == nil {
		t.Error("a child that failed sent a line")
	}
	if err := c.end(); err == nil {
		t.Error("a child that failed exited with 0")
	}
}
