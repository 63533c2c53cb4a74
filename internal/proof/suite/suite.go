// Package suite is the scaffolding that the conformance suites share: checks, waiting with
// a bound, and the means to test a suite on drivers that are broken on purpose.
package suite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience is how long a suite waits for what must happen.
const Patience = 30 * time.Second

// Moment is how long a suite watches for what must not happen.
const Moment = 50 * time.Millisecond

// Check is one case of a suite. It is a function of its driver alone, so that the suite
// itself can be tested on drivers that are broken on purpose.
type Check[H any] struct {
	Name string
	Run  func(t testing.TB, h H)
}

// Run runs each check as a subtest, on a driver of its own. Within [Cases] it runs none of
// them: it adds them to the result.
func Run[H any](t *testing.T, checks []Check[H], new func(t testing.TB) H) {
	list, collecting := collected.Load(t)
	for _, c := range checks {
		if collecting {
			cases := list.(*[]Case)
			*cases = append(*cases, Case{c.Name, func(t testing.TB) { c.Run(t, new(t)) }})
			continue
		}
		t.Run(c.Name, func(t *testing.T) { c.Run(t, new(t)) })
	}
}

// Context returns the test's context, which ends after Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls until ok returns true. It stops the test after Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("after %v: still not: %s", Patience, what)
		}
	}
}

// Settled waits for done, but no longer than Moment, and reports whether it received.
func Settled[T any](done <-chan T) (T, bool) {
	timer := time.NewTimer(Moment)
	defer timer.Stop()
	select {
	case v := <-done:
		return v, true
	case <-timer.C:
		var none T
		return none, false
	}
}

// Spawn runs fn on a goroutine of its own, for which the test waits at its end.
func Spawn[T any](t testing.TB, fn func() T) <-chan T {
	out := make(chan T, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		out <- fn()
	}()
	t.Cleanup(func() { <-over })
	return out
}

// NoError stops the test if err is not nil.
func NoError(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ErrorIs marks the test as failed if err is not want.
func ErrorIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want an error that is %q", what, err, want)
	}
}
