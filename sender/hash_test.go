package sender

import (
	"encoding/json"
	"os"
	"testing"
)

// TestPartitionOf compares with what Azure's client for JavaScript computes.
func TestPartitionOf(t *testing.T) {
	var want struct {
		Counts  []int // of partitions
		Vectors []struct {
			Key        string
			Partitions []int // one for each count
		}
	}
	text, err := os.ReadFile("../internal/hub/testdata/keys.json")
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil || len(want.Vectors) < 100 || len(want.Counts) < 10 {
		t.Fatalf("%d vectors of %d counts, %v", len(want.Vectors), len(want.Counts), err)
	}
	for _, v := range want.Vectors {
		for i, n := range want.Counts {
			if got := partitionOf(v.Key, n); got != v.Partitions[i] {
				t.Errorf("partition of %q among %d: got %d, want %d", v.Key, n, got, v.Partitions[i])
			}
		}
	}
}
