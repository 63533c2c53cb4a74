//go:build unix

package sqlservertest

import (
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// NewProxy starts a proxy in front of a server's address, host:port. Its clients set
// encrypt=disable.
func NewProxy(target string) (*commitproxy.Proxy, error) { return commitproxy.New(target, newWire) }

// NewTestProxy starts a proxy in front of a database's URL, for one test. It returns the URL of the
// same database through the proxy.
func NewTestProxy(t testing.TB, address string) (*commitproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the database's URL cannot be parsed")
	}
	q := u.Query()
	q.Del("TrustServerCertificate")
	q.Set("encrypt", "disable")
	u.RawQuery = q.Encode()
	return commitproxy.NewTest(t, u.String(), newWire)
}
