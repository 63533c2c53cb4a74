package azurite

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var (
	shared = testserver.Shared[*Server]{Package: "azurite"}
	count  atomic.Int64
)

// Run is a package's TestMain: it starts the server that the package's tests
// share, runs them, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(azurite.Run(m)) }
func Run(m *testing.M) int { return run(m, nil) }

// RunAll is [Run] with a server that has queues and tables too.
func RunAll(m *testing.M) int { return run(m, &Config{All: true}) }

func run(m *testing.M, cfg *Config) int {
	return shared.Run(m, func() (*Server, error) { return Start(cfg) })
}

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	return testserver.New(t, func() (*Server, error) { return Start(cfg) })
}

// Connection is the connection string of the server of [Run] or [RunAll].
func Connection(t testing.TB) string {
	t.Helper()
	return shared.Of(t).ConnectionString()
}

// Container returns the name of a container that does not exist yet on the server of
// [Run], and the server's connection string.
func Container(t testing.TB) (connection, container string) {
	t.Helper()
	return shared.Of(t).ConnectionString(), fmt.Sprintf("test-%d", count.Add(1))
}
