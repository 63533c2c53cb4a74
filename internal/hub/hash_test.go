package hub

import (
	"encoding/json"
	"os"
	"testing"
)

// TestPartitionOf compares with what Azure's client for JavaScript computes; emulator/judges/vectors.js wrote it down.
func TestPartitionOf(t *testing.T) {
	text, err := os.ReadFile("testdata/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Counts  []int
		Vectors []struct {
			Key        string
			Hash       int16
			Partitions []int
		}
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.Vectors) < 100 {
		t.Errorf("%d vectors", len(want.Vectors))
	}
	for _, v := range want.Vectors {
		c, b := lookup3([]byte(v.Key))
		if got := int16(c ^ b); got != v.Hash {
			t.Errorf("hash of %q: got %d, want %d", v.Key, got, v.Hash)
		}
		for i, n := range want.Counts {
			if got := partitionOf(v.Key, n); got != v.Partitions[i] {
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
		if c, b := lookup3([]byte(v.key)); c != v.c || b != v.b {
			t.Errorf("lookup3 of %q: got %x %x, want %x %x", v.key, c, b, v.c, v.b)
		}
	}
}
