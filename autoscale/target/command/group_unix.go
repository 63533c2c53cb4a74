//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// together has the end of a program's time be that of all that it has started.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
