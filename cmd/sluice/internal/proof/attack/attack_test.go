//go:build (postgres || mariadb || sqlserver) && linux

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

// plan makes a plan of words, with a fresh seed if they contain none.
func plan(t *testing.T, text string) attack.Plan {
	t.Helper()
	p := attack.Plan{Seed: uint64(time.Now().UnixMilli())}
	if err := p.Set(text); err != nil {
		t.Fatal(err)
	}
	return p
}

func config(t *testing.T, engine *attack.Engine, program string, p attack.Plan) attack.Config {
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
		Engine: engine, Binary: program, Plan: p, Records: records, Dir: t.TempDir(), Log: t.Logf,
		Pipeline: strings.Replace(string(text), line, fmt.Sprintf("\nlease: {for: %v, renew: %v}\nbatch: 200%s", engine.LeaseFor, engine.LeaseFor/3, line), 1),
	}
}

// attacked attacks the program with a plan, which words in the environment variable SLUICE_ATTACK
// change. There must be no findings.
func attacked(t *testing.T, engine *attack.Engine, words string) {
	t.Helper()
	p := plan(t, words+" "+os.Getenv("SLUICE_ATTACK"))
	r, err := attack.Run(t.Context(), config(t, engine, binary, p))
	if err != nil {
		t.Fatalf("%v\n%s", err, repeat(t, p))
	}
	fmt.Printf("\nattack on %s\n%s\n", engine.Name, r)
	if len(r.Findings) > 0 {
		t.Error(repeat(t, p))
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
func repeat(t *testing.T, p attack.Plan) string {
	return fmt.Sprintf("repeat with the same seed: SLUICE_ATTACK='%s' go test -count=1 -tags postgres,mariadb,sqlserver -run '%s$' -v ./cmd/sluice/internal/proof/attack",
		strings.TrimSpace(fmt.Sprintf("%s seed=%d", os.Getenv("SLUICE_ATTACK"), p.Seed)), t.Name())
}

// attackedUnfenced attacks a program without its fence: events must be duplicated.
func attackedUnfenced(t *testing.T, engine *attack.Engine, words string) {
	t.Helper()
	c := config(t, engine, unfenced, plan(t, words))
	c.Unfenced = true
	r, err := attack.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nattack on a program without its fence, on %s\n%s\n", engine.Name, r)
	for _, m := range r.Missing() {
		t.Errorf("fault has not struck often enough: %s", m)
	}
	if r.Duplicated == 0 {
		t.Error("no event was duplicated without the fence, so the attack would not find a duplicate")
	}
}
