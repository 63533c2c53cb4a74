package main_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/connectproxy"
)

// TestSendOverWebSocket: over WebSockets, and through a proxy with a password that nothing shows.
func TestSendOverWebSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hubCert, busCert := filepath.Join(dir, "hub.pem"), filepath.Join(dir, "bus.pem")
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2}}, &emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: hubCert})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, &emulator.ServiceBusConfig{TLSListen: "127.0.0.1:0", TLSCertOut: busCert})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	proxy := connectproxy.New(t, "app", secret)
	file := writeLines(t, numbered(20))
	for _, c := range []struct{ cert, connection, kind, name string }{
		{hubCert, hub.TLSConnectionString(), "--hub", "flights"}, {busCert, bus.TLSConnectionString(), "--queue", "orders"},
	} {
		env := []string{"TO=" + c.connection, "SSL_CERT_FILE=" + c.cert, "SSL_CERT_DIR=" + dir, "PROXY=http://app:" + secret + "@" + proxy.Addr, "WRONG=http://app:wrong-4711@" + proxy.Addr}
		send := []string{"send", "--to", "env:TO", c.kind, c.name, "--websocket", file}
		if out := must(t, "", env, send...); !strings.HasPrefix(out, "20 records acknowledged") || proxy.Tunnels.Load() > 0 {
			t.Errorf("%s: %s, %d tunnels", c.name, out, proxy.Tunnels.Load())
		}
		out := must(t, "", env, append(send[:len(send):len(send)], "--proxy", "env:PROXY")...)
		if !strings.HasPrefix(out, "20 records acknowledged") || proxy.Tunnels.Swap(0) == 0 {
			t.Errorf("%s through the proxy: %s", c.name, out)
		}
		code, out, errs := invoke(t, "", env, append(send[:len(send):len(send)], "--proxy", "env:WRONG")...)
		if code == 0 || !strings.Contains(errs, "the proxy demands a user and a password") || strings.Contains(out+errs, "4711") || proxy.Tunnels.Load() != 0 {
			t.Errorf("%s with another password: exit code %d: %s%s", c.name, code, out, errs)
		}
	}
	plain := []string{"TO=" + hub.ConnectionString()}
	if out := must(t, "", plain, "send", "--to", "env:TO", "--hub", "flights", "--websocket", file); !strings.HasPrefix(out, "20 records acknowledged") {
		t.Errorf("without encryption: %s", out)
	}
	for want, args := range map[string][]string{
		"--proxy needs --websocket: AMQP's own port does not go through a proxy": {"--proxy", "http://proxy.example.com:3128"},
		"--proxy: not the URL of a proxy: write it like http://proxy":            {"--websocket", "--proxy", "corporate"},
		"--proxy: the environment variable NOPROXY is not set":                   {"--websocket", "--proxy", "env:NOPROXY"},
		"--proxy: the URL has a password, which other users of this machine":     {"--websocket", "--proxy", "http://app:" + secret + "@proxy.example.com"},
	} {
		code, out, errs := invoke(t, "", plain, append([]string{"send", "--to", "env:TO", "--hub", "flights", file}, args...)...)
		if code != 2 || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Contains(out+errs, secret) {
			t.Errorf("%q: exit code %d: %s%s, want %s", args, code, out, errs, want)
		}
	}
}
