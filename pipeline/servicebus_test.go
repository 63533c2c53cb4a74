package pipeline

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/stamp"
)

const busFile = `
source: {eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}", hub: flights}}
partitions: all
leases: {sql: "${DATABASE_URL}"}
target:
  servicebus:
    connection: ${SERVICEBUS_CONNECTION_STRING}
    queue: orders
    key: body.who
    body: {n: {from: body.n, type: integer}}
`

// TestIntoServiceBus runs a pipeline from a hub into a queue.
func TestIntoServiceBus(t *testing.T) {
	const n = 200
	hubs, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hubs.Close()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	fill(t, hubs.ConnectionString(), n)

	env := environment("EVENTHUB_CONNECTION_STRING="+hubs.ConnectionString(), "SERVICEBUS_CONNECTION_STRING="+bus.ConnectionString(),
		"DATABASE_URL=sqlite:"+filepath.Join(t.TempDir(), "state.db"))
	p, err := Parse("p.yaml", []byte(busFile), env)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(t.Context())
	c, err := parts.Consumer(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- c.Run(t.Context()) }()

	client, err := azservicebus.NewClientFromConnectionString(bus.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	receiver, err := client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for len(seen) < n {
		messages, err := receiver.ReceiveMessages(t.Context(), n, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			stamp, stamped, err := stamp.From(m.ApplicationProperties)
			if err != nil || !stamped || m.MessageID != stamp.ID.String() || *m.PartitionKey != "key" {
				t.Fatalf("message %+v: %v", m, err)
			}
			seen[string(m.Body)]++
		}
	}
	for i := range n {
		if body := fmt.Sprintf(`{"n":%d}`, i); seen[body] != 1 {
			t.Errorf("%s came %d times", body, seen[body])
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}

	other, err := Parse("p.yaml", []byte(strings.Replace(busFile, "queue: orders", "topic: slip", 1)), env)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "p.yaml:5:1: target: queue or topic slip: ") {
		t.Errorf("of a topic that is not there: %v", err)
	}
}

// fill sends n events to the hub.
func fill(t *testing.T, connection string, n int) {
	t.Helper()
	client, err := azeventhubs.NewProducerClientFromConnectionString(connection, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(t.Context())
	batch, err := client.NewEventDataBatch(t.Context(), &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr("0")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: fmt.Appendf(nil, `{"who":"key","n":%d}`, i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.SendEventDataBatch(t.Context(), batch, nil); err != nil {
		t.Fatal(err)
	}
}

func TestServiceBusFile(t *testing.T) {
	const bus = "SERVICEBUS_CONNECTION_STRING=" + connection
	for _, c := range []struct{ old, new, env, want string }{
		{"    queue: orders\n", "", bus, "p.yaml:6:3: target.servicebus: needs one of queue and topic"},
		{"    queue: orders\n", "    queue: a\n    topic: b\n", bus, "p.yaml:6:3: target.servicebus: needs one of queue and topic"},
		{"    key: body.who\n", "    key: body.who\n    session: body.who\n", bus, "p.yaml:10:5: target.servicebus.session: needs one of key and session: a message with a session has no other key"},
		{"    connection: ${SERVICEBUS_CONNECTION_STRING}\n", "", bus, "p.yaml:6:3: target.servicebus: needs one of connection (write ${SERVICEBUS_CONNECTION_STRING}) and namespace (with credential: default)"},
		{"", "", "SERVICEBUS_CONNECTION_STRING=HostName=a.azure-devices.net;SharedAccessKeyName=a;SharedAccessKey=secret-4711", "p.yaml:7:5: target.servicebus.connection: connection string: is that of an IoT hub (HostName=…)"},
		{"", "", "SERVICEBUS_CONNECTION_STRING=secret-4711", "p.yaml:7:5: target.servicebus.connection: not a connection string: copy the whole string, Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…"},
		{"queue: orders", "hub: orders", bus, "p.yaml:8:5: target.servicebus.hub: unknown key"},
	} {
		_, err := Parse("p.yaml", []byte(strings.Replace(busFile, c.old, c.new, 1)), environment(c.env))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "4711") {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	p, err := Parse("p.yaml", []byte(strings.Replace(busFile, "key: body.who", "session: body.who", 1)), environment(bus))
	if err != nil {
		t.Fatal(err)
	}
	messages, err := targetOf[*messageTarget](p).messages(t.Context(), &sluice.Event{Enqueued: time.Now(), Key: "k", Body: []byte(`{"who":"s","n":1}`)})
	if err != nil || messages[0].SessionID != "s" || messages[0].Key != "" || string(messages[0].Body) != `{"n":1}` {
		t.Errorf("got %+v, %v", messages, err)
	}
}
