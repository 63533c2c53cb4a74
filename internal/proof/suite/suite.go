// Package suite is what the conformance suites share: checks that are functions of
// a driver alone, and waiting with a bound.
package suite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience is how long a suite waits for what must come.
const Patience = 30 * time.Second

// Moment is how long a suite watches for what must not come.
const Moment = 50 * time.Millisecond

// Check is one case of a suite. It is a function of its driver alone, so that
// the suites themselves can be tried on drivers that are broken on purpose.
type Check[H any] struct {
	Name string
	Run  func(t testing.TB, h H)
}

func Run[H any](t *testing.T, checks []Check[H], new func(t testing.TB) H) {
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, new(t)) })
	}
}

// Context is the test's context, which ends after Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls until ok.
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

// Settled waits for done, but no longer than Moment, and tells whether it came.
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

// Spawn runs fn on a goroutine of its own, which the test waits for.
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

// NoError stops the test at an error.
func NoError(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// ErrorIs notes an error that is not the one wanted.
func ErrorIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want an error that is %q", what, err, want)
	}
}
