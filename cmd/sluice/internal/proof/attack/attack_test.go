//go:build linux

package attack_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// program is the one under attack; unfenced is the same without its fence.
var (
	program  = built.Main("github.com/sluice-go/sluice/cmd/sluice")
	unfenced = built.Main("github.com/sluice-go/sluice/cmd/sluice", "-tags", "sluice_unfenced")
)

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// plan makes a plan of words, with the test's seed if they contain none.
func plan(t *testing.T, text string) attack.Plan {
	t.Helper()
	p := attack.Plan{Seed: need.Seed(t)}
	if err := p.Set(text); err != nil {
		t.Fatal(err)
	}
	return p
}

// config is the configuration of an attack on a source and a database, with the pipeline of an
// example.
func config(t *testing.T, source *attack.Source, engine *attack.Engine, program *built.Program, p attack.Plan) attack.Config {
	t.Helper()
	path := program.Path(t)
	file, err := os.Open("../../flights/flights-20k.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var records []json.RawMessage
	if err := json.NewDecoder(unpacked).Decode(&records); err != nil {
		t.Fatal(err)
	}
	var within time.Duration // the default
	if os.Getenv("SLUICE_ATTACK") != "" {
		within = 6 * time.Hour // the hundreds of faults of make soak take hours
	}
	return attack.Config{
		Limit:  within,
		Source: source, Engine: engine, Binary: path, Plan: p, Records: records, Dir: t.TempDir(), Log: t.Logf,
		Pipeline: example(t, map[*attack.Source]string{attack.EventHubs: "flights.yaml", attack.Kafka: "kafka.yaml"}[source], engine, "\nbatch: 200"),
	}
}

// example is the pipeline of an example, with leases that last as long as the engine's, and other
// lines.
func example(t *testing.T, name string, engine *attack.Engine, lines string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return insert(t, string(text), "\npartitions:", fmt.Sprintf("\nlease: {for: %v, renew: %v}", engine.LeaseFor, engine.LeaseFor/3)+lines)
}

// insert puts lines before the one that begins with a word.
func insert(t *testing.T, text, before, lines string) string {
	t.Helper()
	if !strings.Contains(text, before) {
		t.Fatalf("the example does not contain %q", before)
	}
	return strings.Replace(text, before, lines+before, 1)
}

// attacked attacks the program with a plan, which words in the environment variable SLUICE_ATTACK
// change. There must be no findings.
func attacked(t *testing.T, engine *attack.Engine, words string) {
	t.Helper()
	mustPass(t, config(t, attack.EventHubs, engine, program, plan(t, words+" "+os.Getenv("SLUICE_ATTACK"))))
}

// mustPass carries out an attack that must have no findings.
func mustPass(t *testing.T, c attack.Config) {
	t.Helper()
	engine, p := c.Engine, c.Plan
	r, err := attack.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%v\n%s", err, repeat(t, p))
	}
	fmt.Printf("\nattack on %s\n%s\n", engine.Name, r)
	if r.Broken() {
		need.Verdict(t)
	}
	if len(r.Findings) > 0 {
		t.Error(repeat(t, p))
	}
	for _, f := range r.Findings {
		t.Error(f)
	}
	allStruck(t, r)
}

// allStruck skips a test whose attack could not have all of its faults: it has not shown what it
// should, and the summary of make proof says so. A failure stays one.
func allStruck(t *testing.T, r *attack.Report) {
	t.Helper()
	if missing := r.Missing(); len(missing) > 0 && !t.Failed() {
		t.Skipf("could not strike: %s within %v", strings.Join(missing, "; "), r.Attack.Round(time.Second))
	}
}

// repeat is the command that attacks with the same seed again. What strikes is
// drawn from the seed; when it strikes depends on the machine too.
func repeat(t *testing.T, p attack.Plan) string {
	return fmt.Sprintf("repeat with the same seed: SLUICE_ATTACK='%s' go test -count=1 -run '%s$' -v ./cmd/sluice/internal/proof/attack",
		strings.TrimSpace(fmt.Sprintf("%s seed=%d", os.Getenv("SLUICE_ATTACK"), p.Seed)), t.Name())
}

// attackedUnfenced attacks a program without its fence: events must be duplicated.
func attackedUnfenced(t *testing.T, engine *attack.Engine, words string) {
	t.Helper()
	mustDuplicate(t, config(t, attack.EventHubs, engine, unfenced, plan(t, words)))
}

// mustDuplicate attacks a program without its fence, which must have findings.
func mustDuplicate(t *testing.T, c attack.Config) *attack.Report {
	t.Helper()
	c.Unfenced = true
	r, err := attack.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nattack on a program without its fence, on %s\n%s\n", c.Engine.Name, r)
	if r.Duplicated > 0 {
		return r
	}
	allStruck(t, r)
	t.Error("no event was duplicated without the fence, so the attack would not find a duplicate")
	return r
}
