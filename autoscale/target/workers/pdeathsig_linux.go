package workers

import "syscall"

// interruptWithParent has the process interrupted when its parent ends. The kernel goes by the
// thread that started it; the runtime ends no threads that it may use again.
func interruptWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGINT }
