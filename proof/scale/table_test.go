package scale

import (
	"os"
	"testing"
	"time"
)

// full reports whether the figures of docs/performance.md are to be measured. Without that the same
// tests run with fewer processes and partitions.
func full() bool { return os.Getenv("SLUICE_SCALE") != "" }

// TestTable prints what groups of 1 to 64 processes ask of their stores and of the log, and draws
// it.
func TestTable(t *testing.T) {
	ns, ps := []int{1, 4}, []int{32}
	if full() {
		ns, ps = []int{1, 4, 16, 64}, []int{32, 128, 512, 1024}
	}
	var table []rates
	for _, p := range ps {
		for _, n := range ns {
			if n > p {
				continue
			}
			r := measure(t, n, p, 5*time.Minute)
			t.Log(&r)
			table = append(table, r)
			if r.Readers != p {
				t.Errorf("%d processes: %d readers are open of %d partitions", n, r.Readers, p)
			}
			if r.RuntimeInfo > runtimeInfo {
				t.Errorf("%d processes, %d partitions: %.1f management requests a second, want at most %v", n, p, r.RuntimeInfo, runtimeInfo)
			}
		}
	}
	if path := os.Getenv("SLUICE_SCALE_SVG"); path != "" {
		if err := os.WriteFile(path, draw(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
