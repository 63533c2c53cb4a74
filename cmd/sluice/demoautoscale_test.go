package main_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
)

// workersOf lists the processes of a demo's workers that are there.
func workersOf(t testing.TB, dir string) (list []int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "workers", "worker-*.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			t.Fatal(err)
		}
		id, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue // about to be written
		}
		command, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/cmdline") // empty for a dead one that nobody has collected
		if err == nil && strings.Contains(string(command), "worker.yaml") {
			list = append(list, id)
		}
	}
	return list
}

func TestDemoAutoscaleOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "the demo's data")
	plot := filepath.Join(t.TempDir(), "plot.svg")
	began := time.Now()
	out := must(t, "", nil, "demo", "autoscale", "--once", "--data", dir, "--plot", plot)
	t.Logf("it took %v", time.Since(began))
	for _, want := range []string{"6,375 = 6,375, each exactly once", "a second worker with partitions of its own", "The plot is in "} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("the plot: %v, %.40s", err, svg)
	}
	if left := workersOf(t, dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}

	store, err := sqlstore.OpenSQLite(filepath.Join(dir, "state", "autoscale.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := store.Records(t.Context(), "workers", time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	now, most := 1, 1
	for _, r := range log {
		switch r.Kind {
		case autoscale.ActionSucceeded:
			if r.Instances-now != 1 && r.Instances-now != -1 {
				t.Errorf("from %d to %d at once", now, r.Instances)
			}
			now = r.Instances
			most = max(most, now)
		case autoscale.ActionFailed:
			t.Errorf("given up: %s", r.Reason)
		}
	}
	if now != 1 || most < 2 || most > 4 {
		t.Errorf("%d workers at the end, %d at most", now, most)
	}
}

// TestDemoAutoscaleEnds: however it ends, no worker is left.
func TestDemoAutoscaleEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "", nil, "demo", "autoscale", "--data", dir)
	await(t, "workers", func() bool { return len(workersOf(t, dir)) > 0 })
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, p.err.String())
	}
	if left := workersOf(t, dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}

	p = start(t, "", nil, "demo", "autoscale", "--data", dir)
	await(t, "workers", func() bool { return len(workersOf(t, dir)) > 0 })
	if code, _, text := invoke(t, "", nil, "demo", "autoscale", "--once", "--data", dir); code != 1 || !strings.Contains(text, "another") {
		t.Errorf("a second demo in the same directory: exit code %d, %s", code, text)
	}
	p.kill()
	await(t, "their end", func() bool { return len(workersOf(t, dir)) == 0 })
}

func TestDemoAutoscaleMistakes(t *testing.T) {
	t.Parallel()
	if code, _, text := invoke(t, "", nil, "demo", "autoscale", "--plot", "plot.txt"); code != 2 || !strings.Contains(text, "--plot plot.txt") {
		t.Errorf("exit code %d, %s", code, text)
	}
}
