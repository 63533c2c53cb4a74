//go:build unix

package sqlservertest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var shared = testserver.Shared[*Server]{Package: "sqlservertest"}

// Run is a package's TestMain: it provides the server that the package's tests share, says which it is,
// runs the tests, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(sqlservertest.Run(m)) }
func Run(m *testing.M) int { return Around(m.Run) }

// Around is [Run] for tests that need more than one kind of server: run is the run of the tests, or the
// Around of another server.
func Around(run func() int) int { return shared.Around(run, Provide) }

// Provide returns the server of SLUICE_SQLSERVER_URL, and starts a Babelfish where that is not set.
func Provide() (*Server, error) {
	s, err := existing()
	if s == nil && err == nil {
		s, err = Start()
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version, err := s.version(ctx)
	fmt.Fprintln(os.Stderr, "sqlservertest: the server is", version)
	return s, err
}

// New starts a Babelfish for one test.
func New(t testing.TB) *Server {
	t.Helper()
	return testserver.New(t, Start)
}

// Database makes a fresh database on the server of [Run] and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return testserver.Database(t, shared.Of(t))
}
