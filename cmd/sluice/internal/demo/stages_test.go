package demo

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
)

func TestStagesBeginAnewWhereAllIsTooOld(t *testing.T) {
	dir := t.TempDir()
	const mine = "not the demo's"
	if err := os.WriteFile(filepath.Join(dir, mine), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		fresh          time.Duration
		had, restarted bool
	}{{time.Hour, false, false}, {time.Hour, true, false}, {time.Nanosecond, false, true}} {
		d, err := openStages(t.Context(), dir, c.fresh, log)
		if err != nil {
			t.Fatal(err)
		}
		audit, err := d.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Restarted() != c.restarted || (audit.Sent > 0) != c.had {
			t.Errorf("fresh for %v: restarted %v, with %d flights", c.fresh, d.Restarted(), audit.Sent)
		}
		if err := d.ProduceAll(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, mine)); err != nil {
		t.Error(err)
	}
}

func TestFlightsLeaveInTheLastHours(t *testing.T) {
	all, err := flights.UnpackRecords()
	if err != nil {
		t.Fatal(err)
	}
	d := &Stages{records: all}
	lacking := 0
	for i := range int64(5000) {
		r, err := d.flightNow(i)
		if err != nil {
			t.Fatal(err)
		}
		var f departure
		if err := json.Unmarshal(r.Body, &f); err != nil {
			t.Fatal(err)
		}
		if ago := time.Since(f.Departure); ago < 0 || ago > 3*time.Hour+time.Minute || f.Origin == "" || r.Key != f.Origin {
			t.Fatalf("flight %d is %s with key %s", i, r.Body, r.Key)
		}
		if f.Delay == nil {
			lacking++
		}
	}
	if lacking != 5000/flights.LacksDelayEvery {
		t.Errorf("%d flights lack their delay", lacking)
	}
}
