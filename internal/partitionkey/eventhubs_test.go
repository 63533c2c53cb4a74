package partitionkey

import (
	"encoding/json"
	"os"
	"testing"
)

// eventHubVectors are what Azure's client for JavaScript computes for partition keys;
// cmd/sluice/internal/proof/interop/emulator/vectors.js wrote it down.
type eventHubVectors struct {
	Counts  []int // of partitions
	Vectors []struct {
		Key        string
		Hash       int16
		Partitions []int // one for each count
	}
}

func readVectors(t *testing.T) (v eventHubVectors) {
	t.Helper()
	text, err := os.ReadFile("testdata/eventhubs.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Vectors) < 100 || len(v.Counts) < 10 {
		t.Fatalf("%d vectors of %d counts, %v", len(v.Vectors), len(v.Counts), err)
	}
	return v
}

func TestPartition(t *testing.T) {
	want := readVectors(t)
	for _, v := range want.Vectors {
		c, b := lookup3(v.Key)
		if got := int16(c ^ b); got != v.Hash {
			t.Errorf("hash of %q: got %d, want %d", v.Key, got, v.Hash)
		}
		for i, n := range want.Counts {
			if got := EventHubsPartition(v.Key, n); got != v.Partitions[i] {
				t.Errorf("partition of %q among %d: got %d, want %d", v.Key, n, got, v.Partitions[i])
			}
		}
	}
}

// TestLookup3 checks the hash against the examples in its published source.
func TestLookup3(t *testing.T) {
	for _, v := range []struct {
		key  string
		c, b uint32
	}{
		{"", 0xdeadbeef, 0xdeadbeef},
		{"Four score and seven years ago", 0x17770551, 0xce7226e6},
	} {
		if c, b := lookup3(v.key); c != v.c || b != v.b {
			t.Errorf("lookup3 of %q: got %x %x, want %x %x", v.key, c, b, v.c, v.b)
		}
	}
}
