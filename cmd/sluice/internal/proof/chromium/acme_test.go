package chromium

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/internal/proof/freeport"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/selfsigned"
	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestACME obtains a certificate from Pebble, with which Let's Encrypt tests
// clients. Pebble validates the name by TLS-ALPN-01, on the dashboard's own port; a
// DNS server of the test resolves all names to this machine.
func TestACME(t *testing.T) {
	need.Chromium(t)
	need.RealTime(t)
	const name = "sluice.example.com"
	group := sluice.Group{Namespace: "ns", Topic: "t", Name: "g"}
	p := web.Pipeline{Name: "p", Group: group, Source: sluicetest.NewHub(group, 1), Leases: new(sluicetest.Leases)}
	api, management, dns := freeAddress(t), freeAddress(t), freeAddress(t)
	cert, key, roots := localCertificate(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()

	log := &output{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the dashboard:\n%s", log)
		}
	})
	webConfig := &web.Config{
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Dir: t.TempDir(), Token: "correct horse battery staple",
	}
	dashboard.UseACME(webConfig, []string{name}, "https://"+api+"/dir", client)
	d, err := web.New([]web.Pipeline{p}, webConfig)
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, d)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "pebble.json")
	text := fmt.Sprintf(`{"pebble": {"listenAddress": %q, "managementListenAddress": %q, "certificate": %q, "privateKey": %q, "httpPort": 1, "tlsPort": %s}}`,
		api, management, cert, key, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "pebble-challtestsrv", "-dns01", dns, "-management", freeAddress(t), "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", "", "-defaultIPv4", "127.0.0.1")
	run(t, []string{"PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0"}, "pebble", "-config", config, "-dnsserver", dns)

	get := func(url string) (text []byte) {
		eventually(t, func() error {
			response, err := client.Get(url)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, err = io.ReadAll(response.Body)
			return err
		})
		return text
	}
	// After a failure the dashboard asks for no certificate for a minute, so all servers must be
	// there.
	eventually(t, func() error {
		c, err := net.Dial("tcp", dns)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	get("https://" + api + "/dir")
	// Pebble makes a new root certificate at each start.
	trusted := x509.NewCertPool()
	if text := get("https://" + management + "/roots/0"); !trusted.AppendCertsFromPEM(text) {
		t.Fatalf("Pebble's root is %s", text)
	}
	dial := func(name string) (*tls.Conn, error) {
		dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{ServerName: name, RootCAs: trusted, NextProtos: []string{"h2"}}}
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.Close() })
		return c.(*tls.Conn), nil
	}
	// On a busy machine the server may give the connection up before it has the certificate, and
	// Pebble the validation before it has an answer.
	var c *tls.Conn
	eventually(t, func() (err error) {
		c, err = dial(name)
		return err
	})
	state := c.ConnectionState()
	if state.NegotiatedProtocol != "h2" || len(state.VerifiedChains) == 0 || state.PeerCertificates[0].VerifyHostname(name) != nil {
		t.Errorf("the dashboard serves a certificate for %v by %s", state.PeerCertificates[0].DNSNames, state.NegotiatedProtocol)
	}
	again, err := dial(name)
	if err != nil {
		t.Fatal(err)
	}
	if again.ConnectionState().PeerCertificates[0].SerialNumber.Cmp(state.PeerCertificates[0].SerialNumber) != 0 {
		t.Error("each connection has a certificate of its own")
	}
	if _, err := dial("other.example.com"); err == nil {
		t.Error("the dashboard obtained a certificate for another name")
	}
}

// eventually calls fn until it has no error.
func eventually(t *testing.T, fn func() error) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(patience); ; {
		err := fn()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// run runs one of Pebble's programs until the test ends.
func run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../../../../.dev/chromium/bin", name))
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), out, out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run scripts/install-chromium", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("%s:\n%s", name, out)
		}
	})
}

// freeAddress returns an address on which nothing listens, and nothing will by chance.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// localCertificate makes a certificate for 127.0.0.1 in files, and a pool that
// trusts it.
func localCertificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	now := time.Now()
	c, err := selfsigned.New(&selfsigned.Config{Hosts: []string{"127.0.0.1"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), Root: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, text := range map[string][]byte{cert: c.CertPEM, key: c.KeyPEM} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, c.Pool()
}
