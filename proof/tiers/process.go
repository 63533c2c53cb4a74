//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Linux shares CPUs between sessions first (sched_autogroup(7)), and a priority (nice) counts
// inside one session. Each connection to PostgreSQL or Babelfish is a session of its own, while all
// processes of the run are one. So the computing lane's stages are sessions with a low priority,
// and the run's is that of several sessions: otherwise a dozen busy connections leave a test
// without a CPU for seconds.
const (
	foreground = -8
	background = 10
)

// preferSession sets the priority of a process's session, where the system has that and permits it.
func preferSession(pid, priority int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(priority)), 0)
}

// prepare gives a command a process group of its own, so that it ends as a whole.
func prepare(p *exec.Cmd, l lane) {
	if l == computing {
		p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		p.Args = append([]string{"nice", "-n", strconv.Itoa(background)}, p.Args...)
		if path, err := exec.LookPath("nice"); err == nil {
			p.Path = path
		}
		return
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// runGroup runs a command, and kills its process group when ctx ends or the command has left some
// of it.
func runGroup(ctx context.Context, p *exec.Cmd) error { return runGroupWith(ctx, p, func() {}) }

// runGroupWith is runGroup with a function that reads what the command prints, until its end.
func runGroupWith(ctx context.Context, p *exec.Cmd, reading func()) error {
	if err := p.Start(); err != nil {
		return err
	}
	if p.SysProcAttr.Setsid {
		preferSession(p.Process.Pid, background)
	}
	kill := func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(ctx, kill)
	defer stop()
	reading()
	err := p.Wait()
	kill()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// available are the bytes that are free in a directory's file system; 0 if that is unknown.
func available(dir string) uint64 {
	out, err := exec.Command("df", "-Pk", dir).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 2 {
		return 0
	}
	fields := strings.Fields(lines[1])
	if len(fields) < 4 {
		return 0
	}
	kilobytes, _ := strconv.ParseUint(fields[3], 10, 64)
	return kilobytes << 10
}

// availableMemory is the machine's, without what is in use.
func availableMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseUint(fields[0], 10, 64)
	return kilobytes << 10
}
