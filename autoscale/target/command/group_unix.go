//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// killWholeGroup has the end of a program's time be that of all that it has started.
func killWholeGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
