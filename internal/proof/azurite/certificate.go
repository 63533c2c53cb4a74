package azurite

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-go/sluice/internal/selfsigned"
)

// certify makes the server's certificate, and returns the options that make
// it use that.
func (s *Server) certify() ([]string, error) {
	now := time.Now()
	c, err := selfsigned.New(&selfsigned.Config{CommonName: "azurite", Hosts: []string{"127.0.0.1"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), Root: true})
	if err != nil {
		return nil, err
	}
	s.roots, s.certificate = c.Pool(), c.CertPEM
	certFile, keyFile := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	if err := os.WriteFile(certFile, c.CertPEM, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(keyFile, c.KeyPEM, 0o600); err != nil {
		return nil, err
	}
	return []string{"--cert", certFile, "--key", keyFile, "--oauth", "basic"}, nil
}

// Certificate is the server's certificate, in PEM, for programs that are to trust it. It is nil
// without TLS.
func (s *Server) Certificate() []byte { return bytes.Clone(s.certificate) }

// Client is an HTTP client that trusts the server's certificate.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}}
}
