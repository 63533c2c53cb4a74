//go:build !unix

package subprocess

import "os/exec"

// killWholeGroup does nothing: only Unix has process groups. A timeout kills the program alone.
func killWholeGroup(*exec.Cmd) {}
