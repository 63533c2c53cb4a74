package sluice

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// A driver is code of others, as a handler is. A panic in it ends the partition that it is about,
// and not the process with all its partitions. In a request that is about no partition it is the
// failure of the request.

// errGoroutineEnded is why a partition ends one of whose goroutines was ended.
var errGoroutineEnded = errors.New("a goroutine of the partition was ended (runtime.Goexit): look for code of the log's or the store's driver that ends it")

// driverPanic is the error for a recovered value. The deferred function that recovers calls it.
func driverPanic(value any) error {
	return fmt.Errorf("panic outside of the handler, at %s: %w", panicAt(), &driver.PanicError{Value: value, Stack: debug.Stack()})
}

// callDriver calls a driver about no partition.
func callDriver(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = driverPanic(v)
		}
	}()
	return fn()
}

// survive runs a goroutine's part of the work on the partition. A panic, or the end of the
// goroutine, ends the partition.
func (a *assignment) survive(fn func()) {
	returned := false
	defer func() {
		var cause error
		switch v := recover(); {
		case v != nil:
			cause = driverPanic(v)
		case !returned:
			cause = errGoroutineEnded
		default:
			return
		}
		a.failed(cause)
		a.cancel(cause)
	}()
	fn()
	returned = true
}

// guarded is survive for a part of the delivery after which others follow. It returns the reason
// why the partition ends.
func (a *assignment) guarded(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = driverPanic(v)
			a.failed(err)
			a.cancel(err)
		}
	}()
	return fn()
}

// panicAt returns the place of the panic that is being recovered: the package's folder, the file
// and the line.
func panicAt() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	panicking := false
	for {
		frame, more := frames.Next()
		switch inRuntime := strings.HasPrefix(frame.Function, "runtime."); {
		case inRuntime:
			panicking = panicking || frame.Function == "runtime.gopanic"
		case panicking:
			return fmt.Sprintf("%s:%d", filepath.Join(filepath.Base(filepath.Dir(frame.File)), filepath.Base(frame.File)), frame.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
