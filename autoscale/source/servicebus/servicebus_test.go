package servicebus_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/source/servicebus"
	"github.com/sluice-go/sluice/emulator"
)

// bus is an embedded namespace: the queue "jobs" and the topic "orders" with
// the subscription "billing".
type bus struct {
	*testing.T
	server *emulator.ServiceBus
}

func newBus(t *testing.T) *bus {
	server, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "jobs"}},
		[]emulator.ServiceBusTopic{{Name: "orders", Subscriptions: []emulator.ServiceBusQueue{{Name: "billing"}}}},
		&emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return &bus{t, server}
}

func (b *bus) source(cfg servicebus.Config) *servicebus.Source {
	b.Helper()
	cfg.Connection = b.server.AdminConnectionString()
	cfg.Client = b.client()
	s, err := servicebus.New(&cfg)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// client trusts the namespace's certificate.
func (b *bus) client() *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: b.server.AdminCertPool()}}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// set switches the queue and the subscription. Azure's client says nothing of a
// subscription's status, so the request for that is our own.
func (b *bus) set(status admin.EntityStatus) {
	b.Helper()
	connection := b.server.AdminConnectionString()
	client, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: b.client()}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err = client.UpdateQueue(b.Context(), "jobs", admin.QueueProperties{Status: &status}, nil); err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(connection, "sb://")
	host, _, _ := strings.Cut(rest, ";")
	body := `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><SubscriptionDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><Status>` +
		string(status) + `</Status></SubscriptionDescription></content></entry>`
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPut, "https://"+strings.TrimSuffix(host, "/")+"/orders/Subscriptions/billing", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("If-Match", "*")
	response, err := b.client().Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		b.Fatalf("switch the subscription: %s", response.Status)
	}
}

func (b *bus) send(to string, n int) {
	b.Helper()
	client, err := azservicebus.NewClientFromConnectionString(b.server.ConnectionString(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close(context.Background())
	sender, err := client.NewSender(to, nil)
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		if err := sender.SendMessage(b.Context(), &azservicebus.Message{Body: []byte("x")}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bus) expect(s *servicebus.Source, want autoscale.Reading) {
	b.Helper()
	if got, err := s.Read(b.Context()); err != nil || got != want {
		b.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}

func TestBacklog(t *testing.T) {
	b := newBus(t)
	jobs, billing := b.source(servicebus.Config{Queue: "jobs"}), b.source(servicebus.Config{Topic: "orders", Subscription: "billing"})
	b.expect(jobs, autoscale.Reading{})
	b.expect(billing, autoscale.Reading{})
	b.send("jobs", 3)
	b.send("orders", 5)
	b.expect(jobs, autoscale.Reading{Value: 3})
	b.expect(billing, autoscale.Reading{Value: 5})
	if a, b := jobs.Metric(), billing.Metric(); a != "jobs-backlog" || b != "orders-billing-backlog" {
		t.Errorf("metrics are called %s and %s", a, b)
	}
}

// TestSwitchedOff: messages of a disabled queue are not backlog.
func TestSwitchedOff(t *testing.T) {
	b := newBus(t)
	b.send("jobs", 3)
	b.send("orders", 5)
	jobs, billing := b.source(servicebus.Config{Queue: "jobs"}), b.source(servicebus.Config{Topic: "orders", Subscription: "billing"})
	for _, c := range []struct {
		status        admin.EntityStatus
		jobs, billing autoscale.Reading
	}{
		{admin.EntityStatusDisabled, autoscale.Reading{State: autoscale.Disabled}, autoscale.Reading{State: autoscale.Disabled}},
		{admin.EntityStatusReceiveDisabled, autoscale.Reading{State: autoscale.Disabled}, autoscale.Reading{State: autoscale.Disabled}},
		{admin.EntityStatusSendDisabled, autoscale.Reading{Value: 3}, autoscale.Reading{Value: 5}},
		{admin.EntityStatusActive, autoscale.Reading{Value: 3}, autoscale.Reading{Value: 5}},
	} {
		b.set(c.status)
		b.expect(jobs, c.jobs)
		b.expect(billing, c.billing)
	}
}

func TestFailures(t *testing.T) {
	b := newBus(t)
	for _, c := range []struct {
		cfg  servicebus.Config
		want string
	}{
		{servicebus.Config{Queue: "none"}, "queue none: it does not exist"},
		{servicebus.Config{Topic: "orders", Subscription: "none"}, "subscription none of topic orders: it does not exist"},
		{servicebus.Config{Topic: "none", Subscription: "billing"}, "subscription billing of topic none: it does not exist"},
	} {
		if _, err := b.source(c.cfg).Read(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	s := b.source(servicebus.Config{Queue: "jobs"})
	b.server.Close()
	var err error
	for within := 200 * time.Millisecond; within < time.Minute; within *= 2 { // until one attempt was refused
		ctx, cancel := context.WithTimeout(t.Context(), within)
		var r autoscale.Reading
		r, err = s.Read(ctx)
		cancel()
		if err == nil {
			t.Fatalf("the namespace is gone, and %v messages wait", r.Value)
		}
		if strings.Contains(err.Error(), "connection refused") {
			break
		}
	}
	for _, want := range []string{"service bus: queue jobs at 127.0.0.1:", "context deadline exceeded", "connection refused"} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "api-version") {
			t.Errorf("%v, want %s and no query", err, want)
		}
	}
}

func TestKeyWithoutTheRight(t *testing.T) {
	server, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "jobs"}}, nil, &emulator.ServiceBusConfig{
		AdminListen: "127.0.0.1:0", Keys: []emulator.Key{{Name: "manager", Secret: "aHVudGVyMg=="}}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b := &bus{t, server}
	b.expect(b.source(servicebus.Config{Queue: "jobs"}), autoscale.Reading{})
	s, err := servicebus.New(&servicebus.Config{
		Connection: strings.Replace(server.AdminConnectionString(), "aHVudGVyMg==", "aHVudGVyMw==", 1), Queue: "jobs",
		Client: b.client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "service bus: queue jobs: HTTP 401 (Unauthorized") || strings.Contains(err.Error(), "\n") {
		t.Errorf("with a wrong key: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	for _, cfg := range []servicebus.Config{
		{Connection: "x"},
		{Connection: "x", Topic: "orders"},
		{Connection: "x", Subscription: "billing"},
		{Connection: "x", Queue: "jobs", Topic: "orders", Subscription: "billing"},
		{Queue: "jobs"},
		{Namespace: "contoso.servicebus.windows.net", Queue: "jobs"},
		{Connection: "Endpoint=hunter2", Queue: "jobs"},
	} {
		if _, err := servicebus.New(&cfg); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
