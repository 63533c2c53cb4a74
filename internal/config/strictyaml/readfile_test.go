package strictyaml

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, make([]byte, MaxSize+5), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadFile(path); err != nil || len(data) != MaxSize+1 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "p.yaml")); err == nil {
		t.Error("a file that does not exist was read")
	}
}
