//go:build !unix

package demo

import "os/exec"

// apart does nothing: these systems have no such settings.
func apart(*exec.Cmd) {}
