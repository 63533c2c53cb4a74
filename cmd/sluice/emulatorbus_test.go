package main_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// The Service Bus namespace joins the hub emulator: a second line has what clients need.
func TestEmulatorServiceBus(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--key", "all=c2VjcmV0", "--servicebus", "127.0.0.1:0",
		"--servicebus-queue", "orders", "--servicebus-topic", "news/one", "--servicebus-topic", "news/two")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 2 })
	connection, ready := strings.CutPrefix(strings.Split(p.out.String(), "\n")[1], "ready ")
	if !ready || !strings.Contains(connection, "SharedAccessKeyName=all;") {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	for _, entity := range []string{"orders", "news"} {
		s, err := client.NewSender(entity, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMessage(t.Context(), &azservicebus.Message{Body: []byte(entity)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.NewReceiverForSubscription("news", "two", nil)
	if err != nil {
		t.Fatal(err)
	}
	if ms, err := r.ReceiveMessages(t.Context(), 1, nil); err != nil || len(ms) != 1 || string(ms[0].Body) != "news" {
		t.Fatalf("received %d messages: %v", len(ms), err)
	}
}

// An error of the namespace's flags is one line.
func TestEmulatorServiceBusMistakes(t *testing.T) {
	t.Parallel()
	serve := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1"}
	for want, args := range map[string][]string{
		"pass --servicebus ADDRESS, such": {"--servicebus-queue", "orders"},
		"such as --servicebus 127.0.0.1":  {"--servicebus-topic", "news/one"},
		"topic news: write TOPIC/SUBSC":   {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "news"},
		"topic news/: write TOPIC/SUBSC":  {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "news/"},
		"topic /one: write TOPIC/SUBSC":   {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "/one"},
		"pass --servicebus ADDRESS":       {"--servicebus-data", "somewhere"},
		"the namespace's address is":      {"--servicebus-admin", "127.0.0.1:0"},
		"namespace's address is missing":  {"--servicebus-control", "127.0.0.1:0"},
		"address is missing":              {"--servicebus-tier", "premium"},
		"is missing: pass --servicebus":   {"--servicebus-admin-cert-out", "cert.pem"},
		"tier basic: write standard or":   {"--servicebus", "127.0.0.1:0", "--servicebus-tier", "basic"},
		"needs --servicebus-tls ADDRESS":  {"--servicebus", "127.0.0.1:0", "--servicebus-tls-cert-out", "cert.pem"},
		"ADDRESS, such as --servicebus":   {"--servicebus-tls", "127.0.0.1:0"},
		"orders: setting lock=0s: must":   {"--servicebus", "127.0.0.1:0", "--servicebus-queue", "orders,lock=0s"},
		"orders: setting session: write":  {"--servicebus", "127.0.0.1:0", "--servicebus-queue", "orders,session"},
		"setting deliveries=x: strconv":   {"--servicebus", "127.0.0.1:0", "--servicebus-queue", "orders,deliveries=x"},
		"news/one: setting ttl=: time":    {"--servicebus", "127.0.0.1:0", "--servicebus-topic", "news/one,ttl="},
		"needs --servicebus-admin":        {"--servicebus", "127.0.0.1:0", "--servicebus-admin-cert-out", "cert.pem"},
	} {
		code, out, err := invoke(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		if code != 2 || !strings.Contains(err, want) || strings.Count(err, "\n") != 1 || out != "" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}

// An error names the address or the directory that cannot be used.
func TestEmulatorServiceBusFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"must be an address on loopback": {"--servicebus-control", "0.0.0.0:0"},
		"is not a directory":             {"--servicebus-data", file},
		"administration: listen":         {"--servicebus-admin", "256.0.0.1:0"},
		"orders/: use 1 to 260":          {"--servicebus-queue", "orders/"},
		"queue a: an entity of that":     {"--servicebus-queue", "a", "--servicebus-queue", "a"},
	} {
		args = append([]string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--servicebus", "127.0.0.1:0"}, args...)
		code, out, err := invoke(t, "", nil, args...)
		if code != 1 || !strings.Contains(err, strings.Replace(want, "orders/:", `"orders/":`, 1)) || strings.Count(err, "\n") != 1 || out != "" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}

// A namespace with a directory is there again after its process was killed, and can be administered
// over HTTPS.
func TestEmulatorServiceBusData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{
		"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--servicebus", "127.0.0.1:0", "--servicebus-data", filepath.Join(dir, "bus"),
		"--servicebus-admin", "127.0.0.1:0", "--servicebus-admin-cert-out", filepath.Join(dir, "cert.pem"), "--servicebus-tier", "premium", "--servicebus-queue", "orders",
	}
	connect := func() (p *process, connection string, a *admin.Client) {
		p = start(t, "", nil, args...)
		await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 3 })
		lines := strings.Split(p.out.String(), "\n")
		admins, ok := strings.CutPrefix(lines[0], "servicebus-admin ")
		connection, ready := strings.CutPrefix(lines[2], "ready ")
		if !ok || !ready {
			t.Fatalf("the emulator printed %q", p.out.String())
		}
		text, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		t.Cleanup(transport.CloseIdleConnections)
		a, err = admin.NewClientFromConnectionString(admins, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}})
		if err != nil {
			t.Fatal(err)
		}
		return p, connection, a
	}
	p, connection, a := connect()
	if _, err := a.CreateQueue(t.Context(), "made", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{RequiresSession: to.Ptr(true)}}); err != nil {
		t.Fatal(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	s, err := client.NewSender("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMessage(t.Context(), &azservicebus.Message{Body: make([]byte, 500_000)}, nil); err != nil {
		t.Fatal(err)
	}
	p.kill()
	_, _, a = connect()
	n, err := a.GetQueueRuntimeProperties(t.Context(), "orders", nil)
	if err != nil || n == nil || n.ActiveMessageCount != 1 || n.SizeInBytes < 500_000 {
		t.Fatalf("after the kill: %+v, %v", n, err)
	}
	if q, err := a.GetQueue(t.Context(), "made", nil); err != nil || q == nil || !*q.RequiresSession {
		t.Fatalf("after the kill: %+v, %v", q, err)
	}
}

// Queues and subscriptions have the settings that their flags say, and the TLS address
// serves the administration API, too.
func TestEmulatorServiceBusSettings(t *testing.T) {
	t.Parallel()
	cert := filepath.Join(t.TempDir(), "cert.pem")
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "docs=1", "--servicebus", "-", "--servicebus-tls", "localhost:0", "--servicebus-tls-cert-out", cert,
		"--servicebus-queue", "orders,sessions,lock=30s,ttl=1h,deliveries=3", "--servicebus-topic", "news/one,lock=2m", "--servicebus-topic", "news/two")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 3 })
	connection, ok := strings.CutPrefix(strings.Split(p.out.String(), "\n")[0], "servicebus-admin ")
	if !ok {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	a, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.GetQueue(t.Context(), "orders", nil)
	if err != nil || q == nil || !*q.RequiresSession || *q.LockDuration != "PT30S" || *q.DefaultMessageTimeToLive != "PT1H" || *q.MaxDeliveryCount != 3 {
		t.Errorf("queue %+v: %v", q, err)
	}
	for name, want := range map[string]string{"one": "PT2M", "two": "PT1M"} {
		if s, err := a.GetSubscription(t.Context(), "news", name, nil); err != nil || s == nil || *s.LockDuration != want {
			t.Errorf("subscription %s: %+v, %v", name, s, err)
		}
	}
}
