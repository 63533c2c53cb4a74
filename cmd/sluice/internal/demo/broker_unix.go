//go:build unix && !linux

package demo

import (
	"os/exec"
	"syscall"
)

// apart keeps the signals of a terminal from a process.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
