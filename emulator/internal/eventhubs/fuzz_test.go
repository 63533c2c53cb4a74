package eventhubs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/partitionkey"
)

// FuzzHub checks that a valid hub has its own directory in the broker's, and that
// every key always maps to the same partition.
func FuzzHub(f *testing.F) {
	f.Add("flights", 4, "DFW")
	f.Add("a.b-c_d9", 1024, "")
	f.Add("../x", 1, "\xff")
	f.Add("con/..", 32, strings.Repeat("k", 500))
	f.Fuzz(func(t *testing.T, name string, partitions int, key string) {
		c := Config{Name: name, Partitions: partitions}
		if c.validate() != nil {
			return
		}
		b := &Broker{dir: "/data"}
		if dir := b.hubDir(c); filepath.Clean(dir) != dir || filepath.Dir(dir) != "/data" || len(filepath.Base(dir)) > 255 {
			t.Fatalf("hub %q has the directory %q", name, dir)
		}
		p := partitionkey.EventHubsPartition(key, partitions)
		if p < 0 || p >= partitions || partitionkey.EventHubsPartition(key, partitions) != p {
			t.Fatalf("key %q belongs to partition %d of %d", key, p, partitions)
		}
	})
}
