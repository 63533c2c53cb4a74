//go:build unix

package mariadbtest

import (
	"testing"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// NewProxy starts a proxy in front of the address, host:port, of a server of MySQL or MariaDB.
func NewProxy(target string) (*commitproxy.Proxy, error) { return commitproxy.New(target, newWire) }

// NewTestProxy starts a proxy in front of a database's URL, for one test. It returns the URL of the
// same database through the proxy.
func NewTestProxy(t testing.TB, url string) (*commitproxy.Proxy, string) {
	t.Helper()
	return commitproxy.NewTest(t, url, newWire)
}
