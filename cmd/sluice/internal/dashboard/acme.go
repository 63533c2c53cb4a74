package dashboard

import (
	"net/http"
	"path/filepath"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/sluice-go/sluice/pipeline/web"
)

// UseACME makes the dashboard obtain certificates for public host names by ACME and renew them.
// It accepts the terms of the authority. The listener must be reachable as port 443 of these
// names. The certificates are kept in the directory of the configuration. directory is the URL of
// the authority's directory, and client reaches it; empty and nil mean Let's Encrypt and
// http.DefaultClient.
func UseACME(cfg *web.Config, hosts []string, directory string, client *http.Client) {
	m := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(filepath.Join(cfg.Dir, "acme")), HostPolicy: autocert.HostWhitelist(hosts...),
	}
	if directory != "" {
		m.Client = &acme.Client{DirectoryURL: directory, HTTPClient: client}
	}
	cfg.Hosts, cfg.GetCertificate, cfg.Protocols = hosts, m.GetCertificate, []string{acme.ALPNProto}
}
