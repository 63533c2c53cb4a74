package demo

import (
	"os/exec"
	"syscall"
)

// apart keeps the signals of a terminal from a process, and ends it when this one ends, however
// that ends.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
