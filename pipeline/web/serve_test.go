package web_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/pipeline/web"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/storetest"
)

func TestHTTP2OverTLS(t *testing.T) {
	w := newWorld(t, 1, nil)
	client, base := w.serve()
	so, err := client.Get(base)
	if err != nil {
		t.Fatal(err)
	}
	defer so.Body.Close()
	if so.ProtoMajor != 2 || so.TLS == nil || so.TLS.Version != tls.VersionTLS13 || so.StatusCode != http.StatusOK {
		t.Errorf("%s, %+v", so.Proto, so.TLS)
	}
	page, err := io.ReadAll(so.Body)
	if err != nil || !strings.Contains(string(page), "<title>Sluice</title>") {
		t.Errorf("%v in %s", err, page)
	}
	plain, err := http.Get(strings.Replace(base, "https", "http", 1))
	if err != nil {
		t.Fatal(err)
	}
	plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %d", plain.StatusCode)
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}
	if c, err := tls.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(base, "https://"), "/"), old); err == nil {
		c.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

func TestAssets(t *testing.T) {
	w := newWorld(t, 1, nil)
	page := w.ask("GET", "/", "", nil).Body.String()
	seen := 0
	for _, part := range strings.Split(page, `"`) {
		if !strings.HasPrefix(part, "/assets/") {
			continue
		}
		seen++
		rec := w.ask("GET", part, "", nil)
		if rec.Code != http.StatusOK || !strings.Contains(rec.Header().Get("Cache-Control"), "immutable") || rec.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", part, rec.Code, rec.Header())
		}
	}
	if seen < 5 {
		t.Errorf("%d assets", seen)
	}
	// Browsers run no script of another type, whatever this machine says of them.
	if err := mime.AddExtensionType(".js", "text/plain"); err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(page, `<script src="`)
	script, _, _ = strings.Cut(script, `"`)
	if kind := w.ask("GET", script, "", nil).Header().Get("Content-Type"); kind != "text/javascript; charset=utf-8" {
		t.Errorf("%s is %q", script, kind)
	}
	for _, path := range []string{"/assets/", "/assets/x/app.js", "/assets/../dashboard.go", "/favicon.ico", "/autoscaling"} {
		if rec := w.ask("GET", path, "", nil); rec.Code == http.StatusOK {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestBeyondLoopbackATokenIsNeeded(t *testing.T) {
	w := newWorld(t, 1, nil)
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if s, err := w.dashboard.Listen(address); err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v, %v", address, s, err)
		}
	}
	cfg := locked
	w = newWorld(t, 1, &cfg)
	s, err := w.dashboard.Listen("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := newWorld(t, 1, nil).dashboard.Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
}

// once listens and stops, and returns the certificate's fingerprint.
func once(t *testing.T, cfg web.Config) (string, error) {
	t.Helper()
	s, err := newWorld(t, 1, &cfg).dashboard.Listen("127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
	return s.Fingerprint(), nil
}

func TestOwnCertificateIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	first, err := once(t, web.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "dashboard.pem")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if again, err := once(t, web.Config{Dir: dir}); err != nil || again != first {
		t.Errorf("%s after %s, %v", again, first, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest := pem.Decode(text) // the key
	block, _ := pem.Decode(rest)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(c.NotAfter); left > 398*24*time.Hour || left < 396*24*time.Hour {
		t.Errorf("it lasts %v", left)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := c.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := once(t, web.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("of rubbish it says %v", err)
	}
}

func TestGivenCertificate(t *testing.T) {
	dir := t.TempDir()
	first, err := once(t, web.Config{Dir: dir}) // makes one to give
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "dashboard.pem")
	if got, err := once(t, web.Config{CertFile: path, KeyFile: path}); err != nil || got != first {
		t.Errorf("%s, want %s, %v", got, first, err)
	}
	missing := filepath.Join(dir, "missing.pem")
	if _, err := once(t, web.Config{CertFile: missing, KeyFile: path}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing one: %v", err)
	}
	if _, err := once(t, web.Config{CertFile: path}); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("without its key: %v", err)
	}
}

// TestGate: a gate is a source like any other.
func TestGate(t *testing.T) {
	t.Parallel()
	storetest.TestSource(t, func(testing.TB) storetest.SourceHarness { return harness(sluicetest.NewHub(group, 2)) })
}
