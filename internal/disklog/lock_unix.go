//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package disklog

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// DirLock is the lock on a directory that one process, and one holder in it,
// can have.
type DirLock struct{ dir *os.File }

// lockWithin is how long a lock may outlast its process: one that was killed
// while it started another leaves the lock with that, until it has become its
// program.
const lockWithin = time.Second

// LockDir locks a directory, or fails with [ErrLocked] if that takes longer
// than a second. The kernel releases the lock when the process ends, however it
// ends.
func LockDir(path string) (*DirLock, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(lockWithin); ; <-again.C {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &DirLock{dir}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s: %w: stop that one, or use another directory", path, ErrLocked)
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, dir.Close())
}

// Unlock releases the lock.
func (l *DirLock) Unlock() error { return l.dir.Close() }

// syncDir makes the creation, renaming and removal of a directory's files
// durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
