//go:build postgres && linux

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
)

// ci is the plan of the attack in a test run; words in the environment variable
// SLUICE_ATTACK change it.
const ci = "events=200000 rate=1500 kills=30 pauses=14 fenced=1 jumps=6 crashes=3 resets=12 blackholes=9 unplugs=6 commits=60"

// plan makes a plan of words, with a fresh seed if they contain none.
func plan(t *testing.T, text string) attack.Plan {
	t.Helper()
	p := attack.Plan{Seed: uint64(time.Now().UnixMilli())}
	if err := p.Set(text); err != nil {
		t.Fatal(err)
	}
	return p
}

func config(t *testing.T, program string, p attack.Plan) attack.Config {
	t.Helper()
	text, err := os.ReadFile("../../../../../examples/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const line = "\npartitions:"
	if !strings.Contains(string(text), line) {
		t.Fatalf("the example does not contain %q", line)
	}
	file, err := os.Open("../../demo/flights-20k.json.gz")
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
	return attack.Config{
		Binary: program, Plan: p, Records: records, Dir: t.TempDir(), Log: t.Logf,
		Pipeline: strings.Replace(string(text), line, "\nlease: {for: 3s, renew: 1s}\nbatch: 200"+line, 1),
	}
}

// TestAttack attacks the program. There must be no findings.
func TestAttack(t *testing.T) {
	p := plan(t, ci+" "+os.Getenv("SLUICE_ATTACK"))
	r, err := attack.Run(t.Context(), config(t, binary, p))
	if err != nil {
		t.Fatalf("%v\n%s", err, repeat(p))
	}
	fmt.Printf("\nattack\n%s\n", r)
	if len(r.Findings) > 0 {
		t.Error(repeat(p))
	}
	for _, m := range r.Missing() {
		t.Errorf("fault has not struck often enough: %s", m)
	}
	for _, f := range r.Findings {
		t.Error(f)
	}
}

// repeat is the command that attacks with the same seed again. What strikes is
// drawn from the seed; when it strikes depends on the machine too.
func repeat(p attack.Plan) string {
	return fmt.Sprintf("repeat with the same seed: SLUICE_ATTACK='%s' go test -count=1 -tags postgres -run 'TestAttack$' -v ./cmd/sluice/internal/proof/attack",
		strings.TrimSpace(fmt.Sprintf("%s seed=%d", os.Getenv("SLUICE_ATTACK"), p.Seed)))
}

// TestAttackFindsWhatIsBroken attacks a program without its fence: events must be
// duplicated.
func TestAttackFindsWhatIsBroken(t *testing.T) {
	p := plan(t, "events=20000 rate=1500 kills=2 pauses=3 late=40")
	r, err := attack.Run(t.Context(), config(t, unfenced, p))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nattack on a program without its fence\n%s\n", r)
	for _, m := range r.Missing() {
		t.Errorf("fault has not struck often enough: %s", m)
	}
	if r.Duplicated == 0 {
		t.Error("no event was duplicated without the fence, so the attack would not find a duplicate")
	}
}
