//go:build unix

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// Sluice and the loop by hand run, and lose and double nothing. The other peers are
// not installed for tests.
func TestSluiceAndTheLoop(t *testing.T) {
	need.Kafka(t)
	need.Postgres(t)
	need.RealTime(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "consumer"), "./consumer")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := newLab(ctx, options{
		only: regexp.MustCompile("^(" + sluicePeer + "|" + loopPeer + ")$"), programs: dir,
		rounds: 1, every: 1, events: 150_000, limit: 2 * time.Minute, kills: 1, killed: 40_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(l.report.Results); n != 2 {
		t.Fatalf("%d peers", n)
	}
	for _, res := range l.report.Results {
		if s := res.Runs[0]; s.Rows != 150_000 || s.Doubled != 0 || s.PerSecond <= 0 || s.PeakRSS <= 0 {
			t.Errorf("%s: %+v", res.Name, s)
		}
		if k := res.Killed; k.Kills != 1 || k.Events == 0 || k.Events >= 40_000 || k.Lost != 0 || k.Doubled != 0 || k.Aborted != 0 {
			t.Errorf("%s: %+v", res.Name, k)
		}
	}
}
