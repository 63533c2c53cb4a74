// Package workspace reads go.work, the list of the repository's modules.
package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Modules returns the directories of the modules, below the root of the repository: "." is the
// library.
func Modules(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	var modules []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 1 && strings.HasPrefix(fields[0], ".") {
			modules = append(modules, filepath.ToSlash(filepath.Clean(fields[0])))
		}
	}
	if !slices.Contains(modules, ".") {
		return nil, errors.New("go.work does not name the root")
	}
	return modules, nil
}

// Packages returns a pattern for each module, such as ./... and ./autoscale/....
func Packages(root string) ([]string, error) {
	modules, err := Modules(root)
	for i, dir := range modules {
		modules[i] = "./" + filepath.ToSlash(filepath.Join(dir, "..."))
	}
	return modules, err
}
