package azurite

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var (
	shared = testserver.NewShared(need.Azurite, func() (*Server, error) { return Start(&Config{All: true}) })
	count  atomic.Int64
)

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	need.Azurite(t)
	return testserver.New(t, func() (*Server, error) { return Start(cfg) })
}

// Connection is the connection string of the shared server.
func Connection(t testing.TB) string {
	t.Helper()
	return shared.Get(t).ConnectionString()
}

// Container returns the name of a container that does not exist yet on the shared
// server, and the server's connection string.
func Container(t testing.TB) (connection, container string) {
	t.Helper()
	return Connection(t), fmt.Sprintf("test-%d", count.Add(1))
}
