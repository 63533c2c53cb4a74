// Package selfsigned creates self-signed TLS certificates for servers.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Config says what a certificate is for.
type Config struct {
	CommonName string
	Hosts      []string // names and IP addresses of the server
	NotBefore  time.Time
	NotAfter   time.Time
	// Root makes it a root certificate, for clients that want one to trust.
	Root bool
}

// Certificate is a certificate with its key. Its Leaf is set.
type Certificate struct {
	tls.Certificate
	CertPEM, KeyPEM []byte
}

// New creates a key and a certificate.
func New(cfg *Config) (*Certificate, error) {
	c, err := create(cfg)
	if err != nil {
		return nil, fmt.Errorf("create a TLS certificate: %w", err)
	}
	return c, nil
}

func create(cfg *Config) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cfg.CommonName}, NotBefore: cfg.NotBefore, NotAfter: cfg.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: cfg.Root,
	}
	if cfg.Root {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	for _, host := range cfg.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Certificate{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		CertPEM:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// Pool is what a client trusts that trusts the certificate alone.
func (c *Certificate) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}
