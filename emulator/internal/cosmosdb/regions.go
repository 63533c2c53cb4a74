package cosmosdb

import (
	"errors"
	"net"
	"net/http"
)

// regionNames are the names of an account's regions.
var regionNames = [2]string{"West Europe", "North Europe"}

const substatusRegion = 3 // the region takes no writes

// ServeRegion serves the account's second region to clients that connect to l, until Close. Both
// regions have the same documents at once. The first one takes writes, until [Account.Failover].
func (a *Account) ServeRegion(l net.Listener) *Server {
	a.mu.Lock()
	a.second = l.Addr()
	a.mu.Unlock()
	return a.serveRegion(l, 1)
}

// Failover makes the account's other region the one that takes writes. It returns an error
// unless the account has two regions.
func (a *Account) Failover() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.second == nil {
		return errors.New("the account has one region: there is none to fail over to")
	}
	a.writeRegion = 1 - a.writeRegion
	return nil
}

// Regions returns the names of the account's two regions.
func (a *Account) Regions() [2]string { return regionNames }

// WriteRegion returns the index of the region that takes writes.
func (a *Account) WriteRegion() int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.writeRegion
}

// checkRegion refuses writes in a region that takes none.
func (c *call) checkRegion() *failure {
	if c.r.Method == http.MethodGet || c.isQuery() || c.isTrue("X-Ms-Cosmos-Is-Query-Plan-Request") || c.account.WriteRegion() == c.region {
		return nil
	}
	return fail(http.StatusForbidden, substatusRegion, "The requested operation cannot be performed at this region.")
}

// locations returns the account's regions, the one that takes writes first. The addresses have
// the host by which the client has reached the account.
func (c *call) locations() []location {
	scheme := "http://"
	if c.r.TLS != nil {
		scheme = "https://"
	}
	c.account.mu.RLock()
	addrs, writes := []net.Addr{c.account.first, c.account.second}, c.account.writeRegion
	c.account.mu.RUnlock()
	if addrs[1] == nil {
		return []location{{Name: regionNames[0], Endpoint: scheme + c.r.Host + "/"}}
	}
	list := make([]location, len(addrs))
	for i, addr := range addrs {
		host := c.r.Host
		if i != c.region {
			name, _, err := net.SplitHostPort(host)
			if err != nil {
				name = host
			}
			_, port, _ := net.SplitHostPort(addr.String())
			host = net.JoinHostPort(name, port)
		}
		at := i
		if writes == 1 {
			at = 1 - i
		}
		list[at] = location{Name: regionNames[i], Endpoint: scheme + host + "/"}
	}
	return list
}
