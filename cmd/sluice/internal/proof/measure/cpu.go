package measure

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPUOf is the processor time that a process and its children have used, 0
// where there is no /proc (proc(5)).
func CPUOf(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	own, _ := procTimes(pid)
	for _, id := range children(pid) {
		if t, parent := procTimes(id); parent == pid {
			own += t
		}
	}
	return own
}

// children returns the processes that may be children of a process: all, where the kernel does not
// list a process's own.
func children(pid int) (ids []int) {
	var names []string
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, _ := os.ReadFile(list) // of no use if the thread has ended
		names = append(names, strings.Fields(string(data))...)
	}
	if len(lists) == 0 {
		names, _ = filepath.Glob("/proc/[0-9]*")
	}
	for _, name := range names {
		if id, err := strconv.Atoi(filepath.Base(name)); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// procTimes reads the times of a process with those of its children that have
// ended, and its parent.
func procTimes(pid int) (used time.Duration, parent int) {
	const tick = 10 * time.Millisecond // USER_HZ, which the kernel never changes
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the name, which may hold spaces
	f := strings.Fields(rest)
	if len(f) < 15 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(f[1])
	for _, field := range f[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(field)
		used += time.Duration(n) * tick
	}
	return used, parent
}

// Processor is the name of the machine's processor, empty where there is no /proc.
func Processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// CPUOfOne is the processor time that a process has used, without its children that
// still run.
func CPUOfOne(pid int) time.Duration {
	used, _ := procTimes(pid)
	return used
}
