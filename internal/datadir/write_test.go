package datadir

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, text := range []string{"first", "second, which is longer", ""} {
		if err := WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("wrote %q, read %q, %v", text, got, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := WriteFile(filepath.Join(dir, "nowhere", "state"), nil, 0o600); err == nil {
		t.Error("wrote into a directory that does not exist")
	}
	// A rename that fails leaves nothing.
	if err := os.MkdirAll(filepath.Join(dir, "full", "of"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "full"), nil, 0o600); err == nil {
		t.Error("replaced a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}
