package web

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/internal/selfsigned"
)

const (
	// certLifetime is how long a self-signed certificate is valid: the longest that
	// browsers accept.
	certLifetime = 397 * 24 * time.Hour
	// renewBefore is how long before its end it is replaced.
	renewBefore = 30 * 24 * time.Hour
	// certCheckEvery is how often the files of a certificate are looked at.
	certCheckEvery = time.Minute
)

// certSource returns a certificate and keeps it current. It is safe
// for concurrent use.
type certSource struct {
	load func(now time.Time) (*tls.Certificate, error)
	log  *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	checked time.Time
}

// get implements tls.Config.GetCertificate. A certificate that can't be
// renewed stays in use.
func (k *certSource) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.current != nil && now.Sub(k.checked) < certCheckEvery {
		return k.current, nil
	}
	c, err := k.load(now)
	if err != nil && k.current == nil {
		return nil, err
	}
	if err != nil {
		k.log.Error("dashboard: certificate not reloaded, keeping the one in use", "until", k.current.Leaf.NotAfter, "error", err)
	} else {
		k.current = c
	}
	k.checked = now
	return k.current, nil
}

// certFromFiles returns a source of a certificate in files, which may be replaced
// while it is in use.
func certFromFiles(cert, key string, log *slog.Logger) *certSource {
	return &certSource{log: log, load: func(time.Time) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", cert, key, err)
		}
		return &c, nil
	}}
}

// selfSignedCert returns a source of a self-signed certificate for some names and
// addresses. It is kept in a directory, and replaced before it ends or when they
// change.
func selfSignedCert(dir string, names []string, log *slog.Logger) *certSource {
	names = slices.Sorted(slices.Values(names))
	return &certSource{log: log, load: func(now time.Time) (*tls.Certificate, error) {
		path := filepath.Join(dir, "dashboard.pem")
		c, err := readCert(path, names, now)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errStale) {
			return nil, fmt.Errorf("self-signed certificate: %w: remove the file, and a new one is created", err)
		}
		text, err := selfSigned(names, now)
		if err == nil {
			err = writeCert(path, text)
		}
		if err != nil {
			return nil, fmt.Errorf("self-signed certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(text, text)
		return &pair, err
	}}
}

var errStale = errors.New("the certificate is about to end, or for other names")

func readCert(path string, names []string, now time.Time) (*tls.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	has := c.Leaf.DNSNames
	for _, ip := range c.Leaf.IPAddresses {
		has = append(has, ip.String())
	}
	slices.Sort(has)
	if now.Add(renewBefore).After(c.Leaf.NotAfter) || now.Before(c.Leaf.NotBefore) || !slices.Equal(has, names) {
		return nil, errStale
	}
	return &c, nil
}

// writeCert replaces the file atomically. Only its owner can read it.
func writeCert(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return datadir.WriteFile(path, text, 0o600)
}

// selfSigned returns a new key and certificate, in PEM.
func selfSigned(hosts []string, now time.Time) ([]byte, error) {
	c, err := selfsigned.New(&selfsigned.Config{CommonName: "Sluice dashboard", Hosts: hosts, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLifetime)})
	if err != nil {
		return nil, err
	}
	return append(c.KeyPEM, c.CertPEM...), nil
}

// namesOf are the names and addresses by which a listener can be reached.
func namesOf(listening net.IP) []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if listening.IsLoopback() {
		if ip := listening.String(); !slices.Contains(names, ip) {
			names = append(names, ip)
		}
		return names
	}
	if host, err := os.Hostname(); err == nil && host != "localhost" && len(host) < 64 {
		names = append(names, strings.ToLower(host))
	}
	if !listening.IsUnspecified() {
		return append(names, listening.String())
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			names = append(names, n.IP.String())
		}
	}
	return names
}

// fingerprint is the SHA-256 of a certificate, as browsers show it.
func fingerprint(c *tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
