package sluicetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// patience is how long a suite waits for what must come.
const patience = 30 * time.Second

// moment is how long a suite watches for what must not come.
const moment = 50 * time.Millisecond

// check is one case of a suite. It is a function of its driver alone, so that
// the suites themselves can be tried on drivers that are broken on purpose.
type check[H any] struct {
	name string
	run  func(t testing.TB, h H)
}

func runChecks[H any](t *testing.T, checks []check[H], new func(t testing.TB) H) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, new(t)) })
	}
}

// limited is the test's context, ended when patience is.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("after %v: still not: %s", patience, what)
		}
	}
}

// settled waits for done, but no longer than a moment, and tells whether it came.
func settled[T any](done <-chan T) (T, bool) {
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case v := <-done:
		return v, true
	case <-timer.C:
		var none T
		return none, false
	}
}

// spawn runs fn on a goroutine of its own, which the test waits for.
func spawn[T any](t testing.TB, fn func() T) <-chan T {
	out := make(chan T, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		out <- fn()
	}()
	t.Cleanup(func() { <-over })
	return out
}

// ok stops the test at an error.
func ok(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// is notes an error that is not the one wanted.
func is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want an error that is %q", what, err, want)
	}
}

// blames tells whether err is a [*sluice.HandlerError].
func blames(err error) bool {
	_, found := errors.AsType[*driver.HandlerError](err)
	return found
}

// strangers are groups that a driver which joins names carelessly mixes up with
// testGroup, or can't write.
var strangers = []sluice.Group{
	{Namespace: "ns2", Topic: "flights/x", Name: "$Default"},
	{Namespace: "ns", Topic: "flights", Name: "x/$Default"},
	{Namespace: "ns/flights", Topic: "x", Name: "$Default"},
	{Namespace: "ns", Topic: "flights/x", Name: "$default"},
	{Namespace: "ns", Topic: "flights/x/", Name: "Default"},
	{Namespace: "ns", Topic: `o'brien"; --%_\`, Name: "Grüße ✈"},
}

var testGroup = sluice.Group{Namespace: "ns", Topic: "flights/x", Name: "$Default"}
