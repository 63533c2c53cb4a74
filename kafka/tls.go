package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSFiles are the files of a connection over TLS, in PEM. What is empty is left out.
type TLSFiles struct {
	// CA has certificates to trust beside those of the system.
	CA string
	// Certificate and Key are those of this client, for mutual TLS. They are read again for each
	// connection, because certificates are renewed.
	Certificate, Key string
	// ServerName is the name that the brokers' certificates must have. Default: the host.
	ServerName string
}

// Config returns the settings for [Config].TLS. It reads all files, so that a wrong path is found
// before anything connects.
func (f TLSFiles) Config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		if cfg.RootCAs, err = x509.SystemCertPool(); err != nil {
			cfg.RootCAs = x509.NewCertPool()
		}
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates: %s has none in PEM", f.CA)
		}
	}
	if f.Certificate == "" && f.Key == "" {
		return cfg, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate of this client: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = load
	return cfg, nil
}
