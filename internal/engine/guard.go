package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// DriverPanic is the error for a recovered value. The deferred function that recovers calls it.
func DriverPanic(value any) error {
	return fmt.Errorf("panic outside of the handler, at %s: %w", panicAt(), &driver.PanicError{Value: value, Stack: debug.Stack()})
}

// CallDriver calls a driver about no partition.
func CallDriver(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = DriverPanic(v)
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

// Guard runs fn and turns a panic into a [*driver.PanicError].
func Guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &driver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// GuardGoexit is [Guard] for a call that may also end its goroutine by
// runtime.Goexit, as a failed assertion of package testing does. It runs fn on a
// goroutine of its own, so that the caller's lives on. name says in the error what
// has ended its goroutine.
func GuardGoexit(name string, fn func() error) (err error) {
	if !Returns(func() { err = Guard(fn) }) {
		return GoexitError(name)
	}
	return err
}

// GoexitError is the error of a function that has ended its goroutine.
func GoexitError(name string) error {
	return fmt.Errorf("%s ended its goroutine (runtime.Goexit): it must return, with an error if it failed", name)
}

// Returns runs fn on a goroutine of its own. It reports whether fn has returned, and
// not ended its goroutine.
func Returns(fn func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
		returned = true
	}()
	<-done
	return returned
}
