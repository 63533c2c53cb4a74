//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package disklog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirLock is the lock on a directory that one process, and one holder in it,
// can have.
type DirLock struct{ file *os.File }

// LockDir locks a directory, or fails with [ErrLocked]. A file that is open
// cannot be removed here, so the lock is one that could be.
func LockDir(path string) (*DirLock, error) {
	name := filepath.Join(path, "lock")
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: stop that one, or use another directory", path, ErrLocked)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &DirLock{f}, nil
}

// Unlock releases the lock.
func (l *DirLock) Unlock() error {
	return errors.Join(l.file.Close(), os.Remove(l.file.Name()))
}

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
