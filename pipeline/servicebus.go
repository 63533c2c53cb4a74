package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/sender"
)

// serviceBusEntity is a queue or a topic of Service Bus.
type serviceBusEntity struct {
	namespace
	name        string
	batch       batchLimits
	writers     int // batches in flight; 0: the default
	partitioned bool
	topic       bool // not a queue
}

// readServiceBusTarget reads target.servicebus.
func (r *reader) readServiceBusTarget(n strictyaml.Node, only *filter) *messageTarget {
	e := &serviceBusEntity{}
	t, keys := r.messageTarget(e, only, &e.batch)
	keys["partitioned"] = func(n strictyaml.Node) { n.Bool(&e.partitioned) }
	if !r.Rollup {
		group := func(name string) func(strictyaml.Node) {
			return func(n strictyaml.Node) {
				if len(t.group) > 0 {
					n.Fail("needs one of key and session: a message with a session has no other key")
				}
				t.session = name == "session"
				t.readGroup(name, n)
			}
		}
		keys["key"], keys["session"] = group("key"), group("session")
		maps.Copy(keys, t.bus.keys(t))
	}
	e.readEntity(n, keys)
	e.writers = t.sink.InFlight
	return t
}

// readEntity reads the name of a queue or topic, its namespace, and more keys of the same mapping.
func (e *serviceBusEntity) readEntity(n strictyaml.Node, keys strictyaml.Keys) {
	name := func(n strictyaml.Node) { n.Text(&e.name) }
	keys["queue"], keys["topic"] = name, func(n strictyaml.Node) { e.topic = true; name(n) }
	if !e.read(n, keys) {
		return
	}
	switch {
	case !n.ExactlyOne("queue", "topic"):
	case e.node == nil:
		n.Fail("needs one of connection (write ${SERVICEBUS_CONNECTION_STRING}) and namespace (with credential: default)")
	case e.connection != "":
		// The string has the same form for both services. The SDK's error is not
		// returned, because it may quote the string.
		if err := eventhub.CheckConnectionString(e.connection); err != nil {
			e.node.Fail("connection string: %w", err)
		} else if _, err := azeventhubs.ParseConnectionString(e.connection); err != nil {
			e.node.Fail("not a connection string: copy the whole string, Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…")
		}
	}
}

// transport implements [destination].
func (e *serviceBusEntity) transport() (transport, error) {
	cfg := &sender.ServiceBusConfig{Writers: e.writers, MaxMessages: e.batch.messages, MaxBytes: e.batch.bytes, Partitioned: e.partitioned, Client: azservicebus.ClientOptions{ApplicationID: "sluice", TLSConfig: e.tls}}
	if e.websocket {
		cfg.Client.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return e.dial(ctx, args.Host)
		}
	}
	if e.connection != "" {
		return sender.OpenServiceBus(e.connection, e.name, cfg)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return sender.OpenServiceBusWithCredential(e.host, e.name, credential, cfg)
}

// check implements [destination].
func (e *serviceBusEntity) check(ctx context.Context) error {
	out, err := e.transport()
	if err != nil {
		return err
	}
	_, err = out.NewBatch(ctx, "")
	if err != nil {
		err = fmt.Errorf("queue or topic %s: %w", e.name, err)
	}
	return errors.Join(err, out.Close(ctx))
}
