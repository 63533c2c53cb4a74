//go:build unix

package check

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mayWrite reports whether this process may create files in a directory, and creates none.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
