//go:build unix

package subprocess

import (
	"os/exec"
	"syscall"
)

// killWholeGroup makes a timeout kill the program and all processes that it has
// started.
func killWholeGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
