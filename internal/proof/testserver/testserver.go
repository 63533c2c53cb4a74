// Package testserver runs servers for tests: one for all tests of a package, or one
// for a single test.
package testserver

import (
	"fmt"
	"io"
	"os"
	"testing"
)

// Shared is the server that a package's tests share.
type Shared[S io.Closer] struct {
	Package string // package of the server, for error messages
	server  *S     // nil: Run was not called
}

// Run is a package's TestMain: it starts the server, runs the tests, stops the
// server, and returns the exit code.
func (s *Shared[S]) Run(m *testing.M, start func() (S, error)) (code int) {
	return s.Around(m.Run, start)
}

// Around is Run for tests that need more than one kind of server: run is the run of the tests, or the
// Around of another server.
func (s *Shared[S]) Around(run func() int, start func() (S, error)) (code int) {
	server, err := start()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Package, err)
		return 1
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.Package, err)
			code = 1
		}
	}()
	s.server = &server
	return run()
}

// RunAll runs tests with several servers: each is the Around of a server.
func RunAll(run func() int, servers ...func(run func() int) int) int {
	for _, server := range servers {
		inner := run
		run = func() int { return server(inner) }
	}
	return run()
}

// Of returns the server. It fails the test if Run was not called.
func (s *Shared[S]) Of(t testing.TB) S {
	t.Helper()
	if s.server == nil {
		t.Fatalf("no server: the package's TestMain must call %s.Run", s.Package)
	}
	return *s.server
}

// New starts a server for one test, and stops it when the test ends. If the test has
// failed, it prints the server's log.
func New[S interface {
	io.Closer
	Log() string
}](t testing.TB, start func() (S, error)) S {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log: %s", s.Log())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
