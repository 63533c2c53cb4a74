package cosmos_test

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

// TestSlowThroughput: on Azure, a throughput that needs more physical partitions takes
// effect later. Until then the instances are those requested, so that a rule does not
// request them again.
func TestSlowThroughput(t *testing.T) {
	as := emulator.AllAsAzure(1)
	as.Cosmos.SlowThroughput = 300 * time.Millisecond
	a, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, &emulator.CosmosConfig{Throughput: 4000, AsAzure: as})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	docs := target(t, a, "docs", 0)
	if err := docs.Scale(t.Context(), 25); err != nil {
		t.Fatal(err)
	}
	instances(t, docs, 25)
	fresh := target(t, a, "docs", 0) // after a restart
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		n, err := fresh.Instances(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d units, %v", n, err)
		}
		if n == 25 {
			break
		}
	}
	instances(t, docs, 25)
}
