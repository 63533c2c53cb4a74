//go:build unix

package mariadbtest

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var shared = testserver.NewShared(need.MariaDB, Provide)

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	need.MariaDB(t)
	return testserver.New(t, func() (*Server, error) { return Start(cfg) })
}

// Database makes a fresh database on the shared server and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return testserver.Database(t, shared.Get(t))
}
