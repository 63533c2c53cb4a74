package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/sluice-go/sluice/internal/selfsigned"
)

// certificate is the server's self-signed certificate, a new one at every start.
type certificate struct {
	cert tls.Certificate
	pool *x509.CertPool
}

// newCertificate makes a certificate for localhost, the host's name and the address
// listened on. If out isn't empty, it writes the certificate to that file.
func newCertificate(addr net.Addr, listen, out string) (*certificate, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" && net.ParseIP(host) == nil && host != "localhost" {
		hosts = append(hosts, host)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() && !tcp.IP.IsLoopback() {
		hosts = append(hosts, tcp.IP.String())
	}
	if _, port, err := net.SplitHostPort(addr.String()); err == nil { // Go's AMQP client expects the name with the port
		hosts = append(hosts, net.JoinHostPort("localhost", port), net.JoinHostPort("127.0.0.1", port))
	}
	now := time.Now()
	made, err := selfsigned.New(&selfsigned.Config{
		CommonName: "Sluice emulator at " + addr.String(), // unique, because clients find a trusted root by its name
		Hosts:      hosts, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		Root: true, // so that clients can trust it as a root
	})
	if err != nil {
		return nil, err
	}
	if out != "" {
		if err := os.WriteFile(out, made.CertPEM, 0o644); err != nil { //nolint:gosec // a certificate is public
			return nil, fmt.Errorf("write the TLS certificate: %w", err)
		}
	}
	return &certificate{cert: made.Certificate, pool: made.Pool()}, nil
}

func (c *certificate) serverConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.cert}, MinVersion: tls.VersionTLS12}
}
