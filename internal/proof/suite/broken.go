package suite

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// Case is a check together with its driver.
type Case struct {
	Name string
	Run  func(t testing.TB)
}

// collected has the lists of the calls of [Cases] in progress, by the test that each of
// them gives to its suite.
var collected sync.Map

// Cases returns the cases of a suite instead of running them: what the suite hands to [Run].
func Cases(suite func(t *testing.T)) []Case {
	var list []Case
	key := new(testing.T)
	collected.Store(key, &list)
	defer collected.Delete(key)
	suite(key)
	return list
}

// Virtual runs each case of a suite as a subtest in a bubble of testing/synctest, in virtual
// time.
func Virtual(t *testing.T, suite func(t *testing.T)) {
	for _, c := range Cases(suite) {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t) })
		})
	}
}

// Parallel runs the cases of a suite as parallel subtests, for a driver whose server makes a test
// wait more than it computes.
func Parallel(t *testing.T, suite func(t *testing.T)) {
	for _, c := range Cases(suite) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t)
		})
	}
}

// Broken is a driver that is wrong in one way.
type Broken[H any] struct {
	How string
	New func(t testing.TB) H
}

// Caught checks that every broken driver fails the suite, and that every case of the suite
// fails for at least one of them.
func Caught[H any](t *testing.T, suite func(t *testing.T, new func(t testing.TB) H), drivers []Broken[H]) {
	t.Helper()
	unused := make(map[string]bool)
	var names []string
	for i, d := range drivers {
		var by []string
		for _, c := range Cases(func(t *testing.T) { suite(t, d.New) }) {
			if i == 0 {
				names = append(names, c.Name)
				unused[c.Name] = true
			}
			if failures := Failures(t, c.Run); failures != nil {
				by = append(by, fmt.Sprintf("%s: %s", c.Name, failures[0]))
				delete(unused, c.Name)
			}
		}
		if by == nil {
			t.Errorf("a driver that %s passes", d.How)
			continue
		}
		t.Logf("a driver that %s fails\n\t%s", d.How, strings.Join(by, "\n\t"))
	}
	for _, name := range names {
		if unused[name] {
			t.Errorf("no broken driver fails %s", name)
		}
	}
}

// Failures runs a test in a bubble of testing/synctest and returns the failures that it
// reports. They do not fail t.
func Failures(t *testing.T, run func(t testing.TB)) []string {
	t.Helper()
	var failures []string
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		over := make(chan struct{})
		go func() {
			defer close(over)
			run(r)
		}()
		<-over
		failures = r.failures
	})
	return failures
}

// recorder is a test whose failures are recorded, not reported.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
