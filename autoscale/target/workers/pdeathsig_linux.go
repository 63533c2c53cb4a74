package workers

import "syscall"

// interruptWithParent makes the kernel interrupt the process when its parent ends. The
// kernel watches the thread that started the process; the Go runtime ends no thread
// that it may use again.
func interruptWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGINT }
