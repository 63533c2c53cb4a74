package config

import (
	"bytes"
	"os"
	"testing"
)

func TestReferenceIsThatOfTheReader(t *testing.T) {
	for _, problem := range Reference().Check(readExplored) {
		t.Error(problem)
	}
}

// Values at the bounds that the reference states are accepted, and those just outside are refused.
func TestReferenceHasTheBoundsOfTheReader(t *testing.T) {
	compared, problems := Reference().CheckBounds(readExplored, nil)
	for _, problem := range problems {
		t.Error(problem)
	}
	if compared < 40 {
		t.Errorf("compared %d bounds", compared)
	}
}

const makeReference = "UPDATE=1 go test ./autoscale/config -run TestReferencePagesAreCurrent"

func TestReferencePagesAreCurrent(t *testing.T) {
	for name, want := range map[string][]byte{
		"../../docs/reference/autoscale.md": Reference().Markdown("`" + makeReference + "`"),
		"../../docs/schema/autoscale.json":  Reference().Schema(),
	} {
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the reader makes (%v): run %s", name, err, makeReference)
		}
	}
}
