package pipeline

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/connectproxy"
)

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
	proxy := connectproxy.New(t, "app", secret)
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
`+target), environment("EVENTHUB_CONNECTION_STRING="+hubs.TLSConnectionString(), "BUS="+bus.TLSConnectionString(), "DIR="+dir, "PROXY="+proxy.Addr, "PROXY_PASSWORD="+password))
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
		"source":      {toHub, func(p *Pipeline) error { _, err := p.Describe(t.Context()); return err }},
		"hub":         {toHub, func(p *Pipeline) error { return targetOf[*messageTarget](p).check(t.Context(), nil) }},
		"Service Bus": {toBus, func(p *Pipeline) error { return targetOf[*messageTarget](p).check(t.Context(), nil) }},
	} {
		before := proxy.Tunnels.Load()
		if err := connect.check(read(connect.target, secret)); err != nil || proxy.Tunnels.Load() == before {
			t.Errorf("%s: %v, %d tunnels", name, err, proxy.Tunnels.Load()-before)
		}
		before = proxy.Tunnels.Load()
		err := connect.check(read(connect.target, "wrong-4711"))
		if err == nil || !strings.Contains(err.Error(), "the proxy demands a user and a password") || strings.Contains(err.Error(), "4711") || proxy.Tunnels.Load() != before {
			t.Errorf("%s with another password: %v, %d tunnels", name, err, proxy.Tunnels.Load()-before)
		}
	}
}
