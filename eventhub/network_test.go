package eventhub

import (
	"net/url"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/connectproxy"
)

// A network that allows only HTTPS: everything goes over WebSockets, and through a proxy if
// there is one.
func TestOverWebSocket(t *testing.T) {
	receivers(t, func(t *testing.T) {
		b := newBroker(t, &emulator.Config{TLSListen: "127.0.0.1:0"})
		b.send("0", 0, 10, 100)
		work := func(t *testing.T, s *Source) {
			b.read(b.open(s, "0", driver.Position{Sequence: 4}, 1), 5, 10)
			b.eventually("the bounds", func() bool {
				bounds, err := s.Bounds(b.now, "0")
				b.ok("bounds", err)
				return bounds.Last.Sequence == 9
			})
		}
		t.Run("plain", func(t *testing.T) { work(t, b.source(&Config{OverWebSocket: true})) })
		t.Run("tls", func(t *testing.T) {
			work(t, b.sourceOf(b.TLSConnectionString(), &Config{OverWebSocket: true, TLSConfig: b.tls()}))
		})
		t.Run("proxy", func(t *testing.T) {
			proxy := connectproxy.New(t, "", "")
			s := b.sourceOf(b.TLSConnectionString(), &Config{OverWebSocket: true, TLSConfig: b.tls(), Proxy: &url.URL{Scheme: "http", Host: proxy.Addr}})
			work(t, s)
			if n := proxy.Tunnels.Load(); n != 2 {
				t.Errorf("%d connections through the proxy, want 2", n)
			}
		})
		t.Run("no proxy there", func(t *testing.T) {
			gone, _ := url.Parse("http://user:secret@127.0.0.1:1")
			s := b.sourceOf(b.TLSConnectionString(), &Config{OverWebSocket: true, TLSConfig: b.tls(), Proxy: gone})
			err := second(s.Describe(b.now))
			if err == nil {
				t.Fatal("no error")
			}
			checkMessage(t, err.Error(), "connect to wss://")
			checkMessage(t, err.Error(), "connection refused")
		})
		if _, err := New(b.ConnectionString(), hubName, &Config{Proxy: &url.URL{}}); err == nil {
			t.Error("a proxy without WebSockets: no error")
		}
	})
}

// What the basic tier does not have is refused in words: other consumer groups, and more
// connections.
func TestBasicTier(t *testing.T) {
	receivers(t, func(t *testing.T) {
		srv, err := emulator.Start([]emulator.Hub{{Name: hubName, Partitions: 4}},
			&emulator.Config{AsAzure: &emulator.AsAzure{EventHubs: emulator.EventHubsAsAzure{KnownGroups: true, Connections: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv.Close() })
		source := func(group string) *Source {
			s, err := New(srv.ConnectionString(), hubName, &Config{ConsumerGroup: group, Receiver: testedReceiver})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close(t.Context()) })
			return s
		}
		_, err = source("other").Open(t.Context(), "0", driver.Origin, 1)
		if err == nil {
			t.Fatal("another consumer group: no error")
		}
		checkMessage(t, err.Error(), "check the names of the hub and the consumer group; the basic tier has $Default only")
		s := source("")
		for _, p := range []string{"0", "1", "2"} {
			r, failed := s.Open(t.Context(), p, driver.Origin, 1)
			if failed != nil {
				err = failed
				break
			}
			t.Cleanup(func() { r.Close(t.Context()) })
			err = nil
		}
		if err == nil {
			t.Fatal("more connections than the tier has: no error")
		}
		checkMessage(t, err.Error(), "the basic tier has 100")
	})
}

// What IoT Hub states about a device comes as properties, and the device's own properties
// cannot pretend it.
func TestIoTHubAnnotations(t *testing.T) {
	receivers(t, func(t *testing.T) {
		properties := withDevice(map[string]any{"temperature": int64(20), "iothub-connection-device-id": "forged", "iothub-connection-module-id": "forged"},
			map[string]any{"iothub-connection-device-id": "pump-7", "iothub-message-source": "Telemetry", "dt-dataschema": "dtmi:pump;1", "x-opt-other": "x"})
		want := map[string]any{"temperature": int64(20), "iothub-connection-device-id": "pump-7", "iothub-message-source": "Telemetry", "dt-dataschema": "dtmi:pump;1"}
		if len(properties) != len(want) {
			t.Errorf("got %v, want %v", properties, want)
		}
		for name, v := range want {
			if properties[name] != v {
				t.Errorf("%s is %v, want %v", name, properties[name], v)
			}
		}
		own := map[string]any{"iothub-connection-device-id": "of a hub without IoT Hub"}
		if got := withDevice(own, nil); len(got) != 1 {
			t.Errorf("an event that IoT Hub has not sent: %v", got)
		}
		if got := withDevice(nil, map[string]any{"iothub-connection-device-id": "pump-7"}); len(got) != 1 {
			t.Errorf("an event without properties: %v", got)
		}
	})
}
