package disklog

import (
	"os"
	"syscall"
)

// syncData is fdatasync: it does not write the file's times, which saves a write to
// the file system's journal per append.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
