//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirLock is an exclusive lock on a directory or a file.
type DirLock struct{ file *os.File }

// Lock locks a directory or a file that exists, or fails with [ErrLocked]. On these systems
// an open file cannot be removed, so a lock file that can be removed is stale.
func Lock(path string) (*DirLock, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	name := path + ".lock"
	if info.IsDir() {
		name = filepath.Join(path, "lock")
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: stop that process, or name another place", path, ErrLocked)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &DirLock{f}, nil
}

// Unlock releases the lock.
func (l *DirLock) Unlock() error {
	return errors.Join(l.file.Close(), os.Remove(l.file.Name()))
}
