//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disklog

import (
	"errors"
	"os"
)

// syncDir makes the creation, renaming and removal of a directory's files
// durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
