//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package workers

import "syscall"

// tie does nothing: there is no way here.
func tie(*syscall.SysProcAttr) {}
