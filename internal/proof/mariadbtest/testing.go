//go:build unix

package mariadbtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var (
	shared = testserver.Shared[*Server]{Package: "mariadbtest"}
	count  atomic.Int64
)

// Run is a package's TestMain: it starts the server that the package's tests
// share, runs them, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(mariadbtest.Run(m)) }
func Run(m *testing.M) int {
	return shared.Run(m, func() (*Server, error) { return Start(nil) })
}

// New starts a server for one test. A nil cfg takes every default.
func New(t testing.TB, cfg *Config) *Server {
	t.Helper()
	s := testserver.New(t, func() (*Server, error) { return Start(cfg) })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("MariaDB's log: %s", s.Log())
		}
	})
	return s
}

// Database makes a fresh database on the server of [Run] and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	server := shared.Of(t)
	name := fmt.Sprintf("test_%d", count.Add(1))
	url, err := server.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.admin(ctx, "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	return url
}
