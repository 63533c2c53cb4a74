package emulator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator"
)

var keys = []emulator.Key{
	{Name: "all", Secret: "YWxsIHJpZ2h0cw=="},
	{Name: "reader", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
	{Name: "writer", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
}

// withKey is a connection string with another key than the first.
func withKey(k emulator.Key, connection string) string {
	return strings.NewReplacer("="+keys[0].Name+";", "="+k.Name+";", "="+keys[0].Secret, "="+k.Secret).Replace(connection)
}

// eventHubs starts emulators and returns the environment variables with which the checks find them.
func eventHubs(t *testing.T) []string {
	cert := filepath.Join(t.TempDir(), "cert.pem")
	hubs := make([]emulator.Hub, 50)
	names := make([]string, len(hubs))
	for i := range hubs {
		names[i] = fmt.Sprint("flights", i)
		hubs[i] = emulator.Hub{Name: names[i], Partitions: 4, ConsumerGroups: []string{"audit"}}
	}
	srv := start(t, hubs, &emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: cert, Control: "127.0.0.1:0", Keys: keys, Dir: t.TempDir()})
	impatient := start(t, hubs, &emulator.Config{IdleTimeout: 15 * time.Second})
	dropped := start(t, hubs, &emulator.Config{Control: "127.0.0.1:0"})
	return []string{
		"HUBS=" + strings.Join(names, " "), "ALL=" + srv.ConnectionString(), "LISTEN=" + withKey(keys[1], srv.ConnectionString()), "SEND=" + withKey(keys[2], srv.ConnectionString()),
		"TLS=" + srv.TLSConnectionString(), "CERT=" + cert, "NODE_EXTRA_CA_CERTS=" + cert,
		"IDLE=" + impatient.ConnectionString(), "CONTROL=http://" + srv.ControlAddr(),
		"DROPPED=" + dropped.ConnectionString(), "DROPPED_CONTROL=http://" + dropped.ControlAddr(),
	}
}

func start(t *testing.T, hubs []emulator.Hub, cfg *emulator.Config) *emulator.Server {
	srv, err := emulator.Start(hubs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}

// namespaces starts Service Bus namespaces and returns the environment variables with which the
// checks find them.
func namespaces(t *testing.T) []string {
	dir := t.TempDir()
	certs := []string{filepath.Join(dir, "amqp.pem"), filepath.Join(dir, "admin.pem")}
	srv := startBus(t, nil, &emulator.ServiceBusConfig{
		TLSListen: "127.0.0.1:0", TLSCertOut: certs[0], AdminListen: "127.0.0.1:0", AdminCertOut: certs[1], Control: "127.0.0.1:0", Keys: keys,
		Dir: filepath.Join(dir, "data"),
	})
	premium := startBus(t, []emulator.ServiceBusQueue{{Name: "large"}}, &emulator.ServiceBusConfig{Premium: true})
	dropped := startBus(t, []emulator.ServiceBusQueue{{Name: "lost"}}, &emulator.ServiceBusConfig{Control: "127.0.0.1:0"})
	var both []byte
	for _, file := range certs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	trusted := filepath.Join(dir, "trusted.pem")
	if err := os.WriteFile(trusted, both, 0o666); err != nil {
		t.Fatal(err)
	}
	return []string{
		"ALL=" + srv.ConnectionString(), "LISTEN=" + withKey(keys[1], srv.ConnectionString()), "SEND=" + withKey(keys[2], srv.ConnectionString()),
		"ADMIN=" + srv.AdminConnectionString(), "READER=" + withKey(keys[1], srv.AdminConnectionString()), "TLS=" + srv.TLSConnectionString(),
		"PREMIUM=" + premium.ConnectionString(), "CONTROL=http://" + srv.ControlAddr(), "NODE_EXTRA_CA_CERTS=" + trusted,
		"DROPPED=" + dropped.ConnectionString(), "DROPPED_CONTROL=http://" + dropped.ControlAddr(),
	}
}

func startBus(t *testing.T, queues []emulator.ServiceBusQueue, cfg *emulator.ServiceBusConfig) *emulator.ServiceBus {
	srv, err := emulator.StartServiceBus(queues, nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	return srv
}
