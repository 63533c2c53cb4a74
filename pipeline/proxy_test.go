package pipeline

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

// connectProxy starts an HTTP proxy that tunnels for one user, and counts the tunnels.
func connectProxy(t *testing.T, user, password string) (address string, tunnels *atomic.Int64) {
	tunnels = new(atomic.Int64)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		out, err := net.Dial("tcp", r.Host)
		if r.Method != http.MethodConnect || err != nil {
			http.Error(w, "no tunnel", http.StatusBadGateway)
			return
		}
		tunnels.Add(1)
		in, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			out.Close()
			return
		}
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(out, buffered); out.Close() })
		both.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		both.Wait()
	}))
	t.Cleanup(proxy.Close)
	return strings.TrimPrefix(proxy.URL, "http://"), tunnels
}

// TestProxy: source and targets connect through a proxy that demands a password, which is in an
// environment variable and in no error.
func TestProxy(t *testing.T) {
	dir := t.TempDir()
	hubs, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}, {Name: "clean", Partitions: 1}},
		&emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: filepath.Join(dir, "hubs.pem")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hubs.Close() })
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, &emulator.ServiceBusConfig{TLSListen: "127.0.0.1:0", TLSCertOut: filepath.Join(dir, "bus.pem")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	proxy, tunnels := connectProxy(t, "app", secret)
	read := func(target, password string) *Pipeline {
		t.Helper()
		p, err := Parse("p.yaml", []byte(`source:
  eventhub:
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: flights
    tls_ca_file: ${DIR}/hubs.pem
    websocket: true
    proxy: http://app:${PROXY_PASSWORD}@${PROXY}
partitions: all
leases: {sql: "sqlite:x.db"}
target:
`+target), environment("EVENTHUB_CONNECTION_STRING="+hubs.TLSConnectionString(), "BUS="+bus.TLSConnectionString(), "DIR="+dir, "PROXY="+proxy, "PROXY_PASSWORD="+password))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const toHub = "  eventhub: {hub: clean}\n"
	const toBus = `  servicebus:
    queue: orders
    connection: ${BUS}
    tls_ca_file: ${DIR}/bus.pem
    websocket: true
    proxy: http://app:${PROXY_PASSWORD}@${PROXY}
`
	for name, connect := range map[string]struct {
		target string
		check  func(p *Pipeline) error
	}{
		"source":      {toHub, func(p *Pipeline) error { return p.checkHub(t.Context()) }},
		"hub":         {toHub, func(p *Pipeline) error { return p.messages.check(t.Context()) }},
		"Service Bus": {toBus, func(p *Pipeline) error { return p.messages.check(t.Context()) }},
	} {
		before := tunnels.Load()
		if err := connect.check(read(connect.target, secret)); err != nil || tunnels.Load() == before {
			t.Errorf("%s: %v, %d tunnels", name, err, tunnels.Load()-before)
		}
		before = tunnels.Load()
		err := connect.check(read(connect.target, "wrong-4711"))
		if err == nil || !strings.Contains(err.Error(), "the proxy demands a user and a password") || strings.Contains(err.Error(), "4711") || tunnels.Load() != before {
			t.Errorf("%s with another password: %v, %d tunnels", name, err, tunnels.Load()-before)
		}
	}
}
