// Package webpage recognizes requests of web pages that have no business with a server on this
// machine or network: for servers that don't authenticate their clients.
package webpage

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Check returns an error for a request that a foreign web page may have sent: by its Origin
// header, or because the host in the request is a public name. A page gets its browser to send
// that to a local server by resolving its own name to the server's address (DNS rebinding).
// Addresses, and names that the public DNS does not have, can't be used for that: names without
// a dot, such as those of containers, and those that end in .internal (host.docker.internal) or
// .local (Kubernetes' services, mDNS).
func Check(r *http.Request) error {
	host := hostname(r.Host)
	if !local(host) {
		return fmt.Errorf("requests for the host %.100q are refused, because the server has no keys: configure keys, or use an address or localhost", host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Hostname(), host) {
		return fmt.Errorf("requests of web pages from another host are refused, because the server has no keys: configure keys")
	}
	return nil
}

func hostname(hostport string) string { return (&url.URL{Host: hostport}).Hostname() }

func local(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || net.ParseIP(host) != nil {
		return host != ""
	}
	i := strings.LastIndexByte(host, '.')
	return i < 0 || slices.Contains([]string{"localhost", "internal", "local"}, host[i+1:])
}
