// Package testserver runs servers for tests: one for all tests of a test binary, or one
// for a single test.
package testserver

import (
	"io"
	"sync"
	"testing"
)

// Shared is the server that the tests of a test binary share. The first test that asks for it
// starts it, and it ends with the process, however that ends. It is safe for concurrent use.
type Shared[S any] struct {
	need  func(testing.TB) // skips or fails a test where the server is not installed
	start func() (S, error)
	once  sync.Once

	server S
	err    error
}

// NewShared returns a server that start starts. need is a function of package need.
func NewShared[S any](need func(testing.TB), start func() (S, error)) *Shared[S] {
	return &Shared[S]{need: need, start: start}
}

// Get returns the server, and starts it if it does not run. The test skips or fails where the
// server is not installed, and fails if it does not start.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	s.need(t)
	s.once.Do(func() { s.server, s.err = s.start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
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
