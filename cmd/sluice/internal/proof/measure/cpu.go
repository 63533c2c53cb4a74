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
	stats, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range stats {
		id, _ := strconv.Atoi(filepath.Base(dir))
		if t, parent := procTimes(id); parent == pid {
			own += t
		}
	}
	return own
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
