package selfsigned

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

func TestCertificate(t *testing.T) {
	now := time.Now()
	for _, root := range []bool{false, true} {
		c, err := New(&Config{CommonName: "test", Hosts: []string{"example.org", "127.0.0.1", "::1"}, NotBefore: now, NotAfter: now.Add(time.Hour), Root: root})
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"example.org", "127.0.0.1", "::1"} {
			if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: c.Pool(), DNSName: host, CurrentTime: now.Add(time.Minute)}); err != nil {
				t.Errorf("root %v: %s: %v", root, host, err)
			}
		}
		if c.Leaf.VerifyHostname("example.com") == nil || c.Leaf.IsCA != root {
			t.Errorf("root %v: valid for another host, or IsCA is %v", root, c.Leaf.IsCA)
		}
		if _, err := tls.X509KeyPair(c.CertPEM, c.KeyPEM); err != nil {
			t.Errorf("root %v: %v", root, err)
		}
	}
}
