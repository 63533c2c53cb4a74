package azurite

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// shared is the test binary's server, set by Run.
var (
	shared *Server
	count  atomic.Int64
)

// Run is a package's TestMain: it starts the server that the package's tests
// share, runs them, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(azurite.Run(m)) }
func Run(m *testing.M) (code int) {
	s, err := Start(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "azurite:", err)
		return 1
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "azurite:", err)
			code = 1
		}
	}()
	shared = s
	return m.Run()
}

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Container makes up the name of a container that is not there yet on the
// server of [Run], and returns it with the server's connection string.
func Container(t testing.TB) (connection, container string) {
	t.Helper()
	if shared == nil {
		t.Fatal("no server: the package's TestMain must call azurite.Run")
	}
	return shared.ConnectionString(), fmt.Sprintf("test-%d", count.Add(1))
}
