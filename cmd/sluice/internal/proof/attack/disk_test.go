//go:build linux

package attack_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// rounds is the number of failures of each disk.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SLUICE_ATTACK_DISK")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SLUICE_ATTACK_DISK=%s: write a number above 0", text)
	}
	return n
}

// TestDisk attacks the hub and SQLite with disks that are full and disks whose
// fsync fails. The programs must log the reason in one line, lose nothing that was
// acknowledged, and continue when there is space, or after a restart.
func TestDisk(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	for name, strike := range map[string]func(context.Context, attack.DiskConfig) (*attack.DiskReport, error){
		"hub full": attack.FillHub, "hub fsync": attack.FailHubFsync, "sqlite full": attack.FillSQLite, "sqlite fsync": attack.FailSQLiteFsync,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch full := strings.HasSuffix(name, "full"); {
			case full && os.Geteuid() != 0:
				t.Skip("needs root to mount a small disk")
			case !full:
				need.AttackTools(t) // strace
			}
			c := config(t, attack.EventHubs, attack.PostgreSQL, program, attack.Plan{Seed: 1})
			r, err := strike(t.Context(), attack.DiskConfig{
				Binary: c.Binary, Pipeline: c.Pipeline, Records: c.Records, Dir: c.Dir, Rounds: rounds(t), Seed: 1, Log: t.Logf,
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("\n%s: %s\n", name, r)
			if r.Broken {
				need.Verdict(t)
			}
			for _, f := range r.Findings {
				t.Error(f)
			}
			if r.Faults < rounds(t) && !t.Failed() {
				t.Skipf("could not strike: %s, %d of %d within %v", name, r.Faults, rounds(t), r.Took.Round(time.Second))
			}
		})
	}
}
