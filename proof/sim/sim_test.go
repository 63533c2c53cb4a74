package sim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

// runWorld runs one world in its own bubble. If it panics or does not end, the
// panic has the command that repeats its seed; so have the labels of its
// goroutines, which a traceback shows with GODEBUG=tracebacklabels=1.
func runWorld(t *testing.T, cfg Config) (r Result) {
	defer func() {
		if cause := recover(); cause != nil {
			panic(fmt.Sprintf("%v\nrepeat: %s", cause, replay(cfg)))
		}
	}()
	// A world takes less than a second of CPU time. At a low priority it may wait long for that.
	defer time.AfterFunc(10*time.Minute, func() { panic("a world has not ended within ten minutes\nrepeat: " + replay(cfg)) }).Stop()
	pprof.Do(t.Context(), pprof.Labels("replay", replay(cfg)), func(context.Context) {
		synctest.Test(t, func(*testing.T) { r = Run(cfg) })
	})
	return r
}

// replay is the command that repeats one seed and prints its trace.
func replay(cfg Config) string {
	themes := ""
	if text := os.Getenv("SLUICE_SIM_THEMES"); text != "" {
		themes = "SLUICE_SIM_THEMES=" + text + " "
	}
	if cfg.Chain != nil {
		return themes + fmt.Sprintf("SLUICE_SIM_CHAIN=%d go test ./proof/sim -run TestChains -v", cfg.Seed)
	}
	if cfg.Stream != nil && cfg.Stream.Batches != nil {
		return themes + fmt.Sprintf("SLUICE_SIM_BATCH_WORLD=%d go test ./proof/sim -run TestBatchWorlds -v", cfg.Seed)
	}
	if cfg.Stream != nil {
		return themes + fmt.Sprintf("SLUICE_SIM_STREAM=%d go test ./proof/sim -run TestStreams -v", cfg.Seed)
	}
	return themes + fmt.Sprintf("SLUICE_SIM_SEED=%d go test ./proof/sim -run TestSeeds -v", cfg.Seed)
}

const (
	worldSeeds  = 900 // by default
	streamSeeds = 650
	batchSeeds  = 300
	freeSeeds   = 220
	eachSite    = 200 // how often each kind of fault must have struck in them; in more seeds, more often
	eachStream  = 150 // the same, of worlds that deliver at least once: some of their processes are transactional
	eachThemed  = 5   // of a theme's, by how much less
)

// fewer is the share of seeds or repetitions that fits into make test.
func fewer(n int) int {
	if os.Getenv(need.Variable) == "none" {
		return n / 5
	}
	return n
}

// TestSeeds runs worlds with the seeds from 1 on, or with others each time where SLUICE_SEED is
// clock, and counts the faults that strike. SLUICE_SIM_SEEDS sets how many; SLUICE_SIM_SEED runs
// one and prints its trace.
func TestSeeds(t *testing.T) {
	runSeeds(t, "SEED", worldSeeds, eachSite, Draw, Sites(), besideSeeds()...)
}

// runSeeds runs the seeds from [need.Seed] on, or the one in the variable SLUICE_SIM_<name>. The
// themes in SLUICE_SIM_THEMES are those of all worlds then. With SLUICE_SIM_UNTIL_CAUGHT it runs
// the seeds from 1 on until one has a violation, for mutants.
func runSeeds(t *testing.T, name string, byDefault, each int, draw func(uint64) Config, sites []string, beside ...string) {
	if text := os.Getenv("SLUICE_SIM_THEMES"); text != "" {
		themes, err := ParseThemes(text)
		if err != nil {
			t.Fatal(err)
		}
		seeded := draw
		draw = func(seed uint64) Config {
			c := seeded(seed)
			c.Themes = themes
			return c
		}
		each = 0
	}
	if text := os.Getenv("SLUICE_SIM_" + name); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cfg := draw(seed)
		cfg.Keep = true
		r := runWorld(t, cfg)
		fmt.Println(strings.Join(r.Lines, "\n"))
		for _, v := range r.Violations {
			t.Error(v)
		}
		return
	}
	seeds := fewer(byDefault)
	if text := os.Getenv("SLUICE_SIM_" + name + "S"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}
	first := need.Seed(t)
	untilCaught := os.Getenv("SLUICE_SIM_UNTIL_CAUGHT") != ""
	if untilCaught {
		first, each = 1, 0
	}
	fired := map[string]int{}
	var events, rows, deadLetters int
	var virtual time.Duration
	var even []time.Duration
	began := time.Now()
	want := func(site string) int {
		n := each * seeds / byDefault
		if themed(site) {
			n /= eachThemed
		}
		return n
	}
	seldom := func(site string) bool { return seeds >= byDefault && fired[site] < want(site) }
	// A few worlds have all of a kind of fault, so it can be missing by chance: then more worlds
	// are run.
	limit := seeds
	for n := 0; n < limit; n++ {
		cfg := draw(first + uint64(n))
		r := runWorld(t, cfg)
		for k, v := range r.Fired {
			fired[k] += v
		}
		events, rows, deadLetters, virtual = events+r.Events, rows+r.Rows, deadLetters+r.DeadLetters, virtual+r.Virtual
		if cfg.Want == sluice.Balanced {
			even = append(even, r.BalancedAfter)
		}
		if len(r.Violations) > 0 {
			if untilCaught {
				t.Fatalf("caught after %d seeds: %s", n+1, r.Violations[0])
			}
			t.Errorf("seed %d: %d violations, the first: %s\nrepeat: %s", cfg.Seed, len(r.Violations), r.Violations[0], replay(cfg))
		}
		if n%1000 == 999 {
			t.Logf("%d seeds, %v simulated", n+1, virtual.Round(time.Minute))
		}
		if n+1 == limit && limit < 4*seeds && slices.ContainsFunc(sites, seldom) {
			limit += seeds
		}
	}
	t.Logf("%d seeds from %d: %v simulated in %v; %d events, %d rows, %d dead letters", limit, first, virtual.Round(time.Minute), time.Since(began).Round(time.Second), events, rows, deadLetters)
	if slices.Sort(even); len(even) > 0 {
		t.Logf("%d worlds balance their partitions: balanced %v (median), %v (95%%), %v (longest) after the last fault", len(even), even[len(even)/2], even[len(even)*95/100], even[len(even)-1])
	}
	for _, site := range sites {
		t.Logf("%8d %s", fired[site], site)
		if seldom(site) {
			t.Errorf("%s: struck only %d times in %d seeds, want at least %d", site, fired[site], limit, want(site))
		}
	}
	for site := range fired {
		if each > 0 && !slices.Contains(sites, site) && !slices.Contains(beside, site) {
			t.Errorf("%s is not in the list of sites", site)
		}
	}
}

// TestStreams runs worlds whose consumers deliver at least once. SLUICE_SIM_STREAMS
// sets how many; SLUICE_SIM_STREAM runs one and prints its trace.
func TestStreams(t *testing.T) {
	runSeeds(t, "STREAM", streamSeeds, eachStream, DrawStream, StreamSites(), besideStreams()...)
}

// TestBatchWorlds runs worlds whose consumers handle batches. SLUICE_SIM_BATCH_WORLDS sets how
// many; SLUICE_SIM_BATCH_WORLD runs one and prints its trace.
func TestBatchWorlds(t *testing.T) {
	runSeeds(t, "BATCH_WORLD", batchSeeds, 0, DrawBatches, StreamSites())
}

// TestSeedsThatFailed repeats worlds in which the engine or an oracle was wrong once.
func TestSeedsThatFailed(t *testing.T) {
	for _, cfg := range []Config{
		DrawBatches(1795875271974309), // an operator's epoch is that of an owner whose claim a failover has lost
		DrawChain(1099),               // an operator comes before the owner of a lost checkpoint has claimed it again
	} {
		for _, v := range runWorld(t, cfg).Violations {
			t.Errorf("%s\nrepeat: %s", v, replay(cfg))
		}
	}
}

// TestOneSeedOneTrace runs worlds repeatedly: the seed alone must decide what
// happens.
func TestOneSeedOneTrace(t *testing.T) {
	need.RealTime(t) // a process that gets no processor can have another trace: Go interrupts a goroutine after 10 ms
	for seed := range uint64(fewer(50)) {
		times := 3
		if seed < 2 {
			times = 20
		}
		oneTrace(t, Draw(seed), times, 0)
		stream := DrawStream(seed)
		stream.Stream.Rate = 0                      // partitions wait for it in no fixed order
		stream.Themes &^= apiOutages | environments // many records wait at once; when the engine's timer fires for them varies by 20 ms
		oneTrace(t, stream, times, 1+times/10)
	}
}

// oneTrace repeats a world, and checks that all traces are the same, except for a
// number of odd ones. Worlds that deliver at least once may have some: when two
// goroutines of a process wake at one moment, they sometimes run in the other order.
// Where there are too many, by chance perhaps, four times as many runs decide, with the
// same share.
func oneTrace(t *testing.T, cfg Config, times, odd int) {
	t.Helper()
	traces := map[uint64]int{}
	most := func(runs int) (n int) {
		for range runs {
			traces[runWorld(t, cfg).Trace]++
		}
		return slices.Max(slices.Collect(maps.Values(traces)))
	}
	runs := times + 1
	same := most(runs)
	if same < runs-odd && odd > 0 {
		same = most(3 * runs)
		runs, odd = 4*runs, 4*odd
	}
	if same < runs-odd {
		t.Fatalf("seed %d gave %d different traces in %d runs, %d of them equal; repeat: %s", cfg.Seed, len(traces), runs, same, replay(cfg))
	}
}

// TestFree runs worlds whose goroutines run in parallel, for the race detector.
func TestFree(t *testing.T) {
	began := time.Now()
	for seed := range uint64(fewer(freeSeeds)) {
		cfg := Draw(seed)
		if seed%3 == 0 {
			cfg = DrawStream(seed)
		}
		cfg.Free = true
		for _, v := range runWorld(t, cfg).Violations {
			t.Errorf("seed %d, free: %s", seed, v)
		}
	}
	t.Logf("%d seeds in %v", fewer(freeSeeds), time.Since(began).Round(time.Second))
}

// TestMutants removes one protection at a time. The worlds must report violations.
func TestMutants(t *testing.T) {
	for _, m := range []struct {
		name   string
		mutate func(*Config)
	}{
		{"no fence, no position check", func(c *Config) {
			c.Unsafe = sluicetest.UnsafeStore{NoFence: true, NoPosition: true, LateCommit: true}
		}},
		{"no fence", func(c *Config) { c.Unsafe = sluicetest.UnsafeStore{NoFence: true, LateCommit: true} }},
		{"no position check", func(c *Config) { c.Unsafe = sluicetest.UnsafeStore{NoPosition: true, LateCommit: true} }},
		{"epoch not raised", func(c *Config) {
			c.Want = sluice.AllPartitions // members of one epoch are not members
			c.UnsafeLeases.SameEpoch = true
			c.Unsafe = sluicetest.UnsafeStore{NoPosition: true, LateCommit: true}
		}},
		{"effects and checkpoint in two transactions", func(c *Config) { c.Unsafe.SplitCommit = true }},
		{"blind retry of an unknown commit, no position check", func(c *Config) {
			c.Blind = true
			c.Unsafe = sluicetest.UnsafeStore{NoPosition: true, LateCommit: true}
		}},
		{"stream: checkpoint at the highest done instead of the furthest consecutive", func(c *Config) {
			*c = DrawStream(c.Seed)
			c.Stream.Highest = true
		}},
		{"stream: dead letters lost", func(c *Config) {
			*c = DrawStream(c.Seed)
			c.Unsafe.LostDeadLetters = true
		}},
		{"stream: no fence", func(c *Config) {
			*c = DrawStream(c.Seed)
			c.Unsafe.NoFence = true
		}},
		{"stream: backwards", func(c *Config) {
			*c = DrawStream(c.Seed)
			c.Unsafe.Backwards = true
		}},
		{"batches: dead letters lost", func(c *Config) {
			*c = DrawBatches(c.Seed)
			c.Unsafe.LostDeadLetters = true
		}},
		{"batches: no fence", func(c *Config) {
			*c = DrawBatches(c.Seed)
			c.Unsafe.NoFence = true
		}},
		{"batches: backwards", func(c *Config) {
			*c = DrawBatches(c.Seed)
			c.Unsafe.Backwards = true
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(500) {
				cfg := Draw(seed)
				m.mutate(&cfg)
				if r := runWorld(t, cfg); len(r.Violations) > 0 {
					t.Logf("caught by seed %d: %s", seed, r.Violations[0])
					return
				}
			}
			t.Error("not caught by 500 seeds")
		})
	}
}
