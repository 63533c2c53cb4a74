//go:build unix

package sqlservertest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// shared is the test binary's server.
var shared = testserver.NewShared(need.SQLServer, Provide)

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
	need.SQLServer(t)
	return testserver.New(t, Start)
}

// Database makes a fresh database on the shared server and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return testserver.Database(t, shared.Get(t))
}
