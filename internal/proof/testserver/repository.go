package testserver

import (
	"errors"
	"os"
	"path/filepath"
)

// Repository returns the root of the repository that the tests run in, which has the directory
// .dev.
func Repository() (dir string, err error) {
	if dir, err = os.Getwd(); err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("found no go.work: run the test in the repository")
		}
		dir = above
	}
}
