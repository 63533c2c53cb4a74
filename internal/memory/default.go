package memory

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// DefaultLimit is the budget in bytes of a process whose memory nothing limits.
const DefaultLimit = 1 << 30

// smallest is the smallest budget in bytes that is derived from a limit.
const smallest = 16 << 20

// Process returns the budget of this process. By default that is half of the memory that the
// process may use: garbage takes as much again until it is collected. The memory is GOMEMLIMIT, or
// nine tenths of the smallest limit of its control groups if that is less. Without both it is
// DefaultLimit.
var Process = sync.OnceValue(func() *Budget {
	return New(limitOf(debug.SetMemoryLimit(-1), cgroupLimit(os.DirFS("/"))))
})

// limitOf returns the budget under a memory limit of the runtime and one of the control groups,
// each MaxInt64 if there is none.
func limitOf(runtime, cgroup int64) int64 {
	may := min(runtime, share(cgroup))
	if may == math.MaxInt64 {
		return DefaultLimit
	}
	return max(smallest, may/2)
}

// share returns what of a control group's memory the Go runtime may use: nine tenths, because the
// group also counts memory that the runtime does not manage.
func share(cgroup int64) int64 {
	if cgroup == math.MaxInt64 {
		return cgroup
	}
	return cgroup / 10 * 9
}

// LimitHeap sets the runtime's memory limit, as GOMEMLIMIT does, to nine tenths of the smallest
// limit of the control groups, unless there is one already. Programs call it, libraries don't.
func LimitHeap() {
	if cgroup := cgroupLimit(os.DirFS("/")); cgroup < math.MaxInt64 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(share(cgroup))
	}
}

// cgroupLimit returns the smallest memory limit of the control groups that the process is in, from
// its own up to the root, in version 2 and version 1; MaxInt64 if there is none.
func cgroupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) { // such as 4:memory:/pod or 0::/pod
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			limit = min(limit, smallestAbove(root, "sys/fs/cgroup", fields[2], "memory.max"))
			limit = min(limit, smallestAbove(root, "sys/fs/cgroup/unified", fields[2], "memory.max"))
		case strings.Contains(","+fields[1]+",", ",memory,"):
			limit = min(limit, smallestAbove(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
		}
	}
	return limit
}

// unlimited is what version 1 of the control groups says at least where there is no limit.
const unlimited = 1 << 62

// smallestAbove returns the smallest limit in the files of one name, from a group up to the mount's
// root. A container may see its own group as the root, and a path that it cannot see.
func smallestAbove(root fs.FS, mount, group, name string) int64 {
	limit := int64(math.MaxInt64)
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		text, err := fs.ReadFile(root, path.Join(mount, dir, name))
		if err == nil {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 && n < unlimited {
				limit = min(limit, n)
			}
		}
		if dir == "/" {
			return limit
		}
	}
}
