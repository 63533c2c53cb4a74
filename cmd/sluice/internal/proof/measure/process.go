package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Activity is what the scheduler has counted of a process's threads that still run.
type Activity struct {
	CPU     time.Duration
	Wakeups int // voluntary context switches: how often a thread waited and was woken
}

// ActivityOf reads /proc (proc(5)), to the nanosecond where the kernel has schedstat. It is zero
// where there is no /proc.
func ActivityOf(pid int) (a Activity) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		stat, _ := os.ReadFile(filepath.Join(task, "schedstat")) // of no use if the thread has ended
		if f := strings.Fields(string(stat)); len(f) > 0 {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			a.CPU += time.Duration(n)
		}
		a.Wakeups += number(filepath.Join(task, "status"), "voluntary_ctxt_switches:")
	}
	return a
}

// ResidentOf is the resident memory of a process in bytes, 0 where there is no /proc, or no such
// process.
func ResidentOf(pid int) int64 {
	return int64(number(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")) << 10
}

// number returns the number that follows a name at the beginning of a line of a file, else 0.
func number(path, name string) int {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			f := strings.Fields(rest)
			if len(f) == 0 {
				return 0
			}
			n, _ := strconv.Atoi(f[0])
			return n
		}
	}
	return 0
}

// Load is the machine's load average of the last minute, 0 where there is no /proc.
func Load() float64 {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
