//go:build sluice_small_bounds

package sim

import "testing"

// TestChainsBounds runs worlds whose second stage reaches the bounds of its deduplication, which it
// must report: see [bounds]. A bound that is passed silently must be seen.
func TestChainsBounds(t *testing.T) {
	for seed := range uint64(500) {
		cfg := DrawChain(seed)
		cfg.Chain.Unreported = true
		if r := runWorld(t, cfg); len(r.Violations) > 0 {
			t.Logf("caught by seed %d: %s", seed, r.Violations[0])
			return
		}
	}
	t.Error("silent bounds are not caught by 500 seeds")
}
