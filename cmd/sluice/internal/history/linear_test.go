//go:build unix

package history

import (
	"syscall"
	"testing"
	"time"
)

// processorTime is what this process has used: other processes do not make it longer.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLinear: ten times the records take about ten times as long.
func TestLinear(t *testing.T) {
	took := func(n int64) time.Duration {
		began := processorTime(t)
		var c Checker
		c.Add(Record{Kind: Sent, Partition: "0", From: -1, To: n - 1})
		for i := range n {
			c.Add(Record{Kind: Committed, Owner: "a", Partition: "0", Epoch: 1, From: i - 1, To: i})
			c.Add(Record{Kind: Effect, Partition: "0", To: i})
		}
		if found := c.Findings(10); len(found) > 0 {
			t.Fatal(found)
		}
		return processorTime(t) - began
	}
	small, large := took(100_000), took(1_000_000)
	for try := 0; try < 4 && large > 40*small; try++ { // the caches may have been others'
		small, large = min(small, took(100_000)), min(large, took(1_000_000))
	}
	t.Logf("100,000 events in %v, 1,000,000 in %v", small, large)
	if large > 40*small {
		t.Errorf("100,000 events took %v, 1,000,000 took %v", small, large)
	}
}
