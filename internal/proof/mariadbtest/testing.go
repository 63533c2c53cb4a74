//go:build unix

package mariadbtest

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var shared = testserver.Shared[*Server]{Package: "mariadbtest"}

// Run is a package's TestMain: it provides the server that the package's tests
// share, runs them, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(mariadbtest.Run(m)) }
func Run(m *testing.M) int {
	return Around(m.Run)
}

// Around is [Run] for tests that need more than one kind of server: run is the run of the tests, or the
// Around of another server.
func Around(run func() int) int {
	return shared.Around(run, Provide)
}

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	return testserver.New(t, func() (*Server, error) { return Start(cfg) })
}

// Database makes a fresh database on the server of [Run] and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return testserver.Database(t, shared.Of(t))
}
