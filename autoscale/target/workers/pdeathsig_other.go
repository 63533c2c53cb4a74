//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package workers

import "syscall"

// interruptWithParent does nothing: only Linux has PR_SET_PDEATHSIG.
func interruptWithParent(*syscall.SysProcAttr) {}
