//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package datadir

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// DirLock is an exclusive lock on a directory or a file.
type DirLock struct{ dir *os.File }

// lockTimeout is how long Lock waits. The lock of a killed process can outlive it: a
// process killed between fork and exec of a child leaves its lock to the child until
// the exec.
const lockTimeout = time.Second

// Lock locks a directory or a file that exists, or fails with [ErrLocked] if the lock is
// not free within a second. The kernel releases the lock when the process ends, however it
// ends.
func Lock(path string) (*DirLock, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(lockTimeout); ; <-again.C {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &DirLock{dir}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s: %w: stop that process, or name another place", path, ErrLocked)
	} else {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, dir.Close())
}

// Unlock releases the lock.
func (l *DirLock) Unlock() error { return l.dir.Close() }
