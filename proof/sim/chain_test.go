package sim

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

const (
	chainSeeds  = 500 // by default
	eachInChain = 15  // how often each kind of fault must have struck in them
)

// TestChains runs worlds of two stages. SLUICE_SIM_CHAINS sets how many;
// SLUICE_SIM_CHAIN runs one and prints its trace.
func TestChains(t *testing.T) {
	runSeeds(t, "CHAIN", chainSeeds, eachInChain, DrawChain, ChainSites(), "checkpoint set after a halt")
}

// TestChainsOneTrace repeats worlds of two stages.
func TestChainsOneTrace(t *testing.T) {
	need.RealTime(t) // see TestOneSeedOneTrace
	for seed := range uint64(30) {
		oneTrace(t, DrawChain(seed), 3, 1)
	}
}

// TestChainsFree runs them with goroutines in parallel, for the race detector.
func TestChainsFree(t *testing.T) {
	for seed := range uint64(40) {
		cfg := DrawChain(seed)
		cfg.Free = true
		for _, v := range runWorld(t, cfg).Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
	}
}

// TestChainMutants removes one part at a time of what keeps duplicates from taking
// effect. The worlds must report violations.
func TestChainMutants(t *testing.T) {
	for name, mutate := range map[string]func(*Config){
		"no dedupe":                  func(c *Config) { c.Chain.Unstamped = true },
		"watermark without ids":      func(c *Config) { c.Chain.Unnamed = true },
		"ids are not persisted":      func(c *Config) { c.Unsafe = sluicetest.UnsafeStore{LostDedup: true} },
		"watermark is what was sent": func(c *Config) { c.Chain.Early = true },
		"dead letters are not named": func(c *Config) { c.Chain.Silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(500) {
				cfg := DrawChain(seed)
				mutate(&cfg)
				if r := runWorld(t, cfg); len(r.Violations) > 0 {
					t.Logf("caught by seed %d: %s", seed, r.Violations[0])
					return
				}
			}
			t.Error("not caught by 500 seeds")
		})
	}
}
