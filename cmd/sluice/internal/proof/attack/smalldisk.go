//go:build linux

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// smallDisk is a file system in memory of a fixed size, with a ballast file that
// fills it.
type smallDisk struct{ dir string }

// mountSmallDisk mounts a file system of a size, for which it needs to be root.
func mountSmallDisk(dir string, megabytes int) (*smallDisk, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := syscall.Mount("sluice-attack", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		return nil, fmt.Errorf("mount a disk at %s: %w", dir, err)
	}
	return &smallDisk{dir}, nil
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill fills the disk.
func (d *smallDisk) fill() error {
	f, err := os.OpenFile(d.ballast(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		n, err := f.Write(block)
		switch {
		case errors.Is(err, syscall.ENOSPC) && n == 0:
			block = block[:len(block)/2] // the last bytes count too
		case err != nil && !errors.Is(err, syscall.ENOSPC):
			return err
		}
	}
	return nil
}

// free frees space.
func (d *smallDisk) free(megabytes int64) error {
	info, err := os.Stat(d.ballast())
	if err != nil {
		return err
	}
	return os.Truncate(d.ballast(), max(0, info.Size()-megabytes<<20))
}

func (d *smallDisk) close() error { return syscall.Unmount(d.dir, syscall.MNT_DETACH) }

// failFsync returns a command that runs another under strace, which makes fsyncs
// fail with EIO and logs the calls to the file trace. strace's manual describes
// when, under inject; each thread counts its own calls. With -D the started
// process is the program itself, not strace.
func failFsync(trace, when string, args ...string) []string {
	return append([]string{"strace", "-D", "-f", "--seccomp-bpf", "-q", "-o", trace,
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=" + when}, args...)
}

// injected is the number of calls that strace has made fail.
func injected(trace string) int {
	text, _ := os.ReadFile(trace) // not there yet
	return strings.Count(string(text), "(INJECTED)")
}
