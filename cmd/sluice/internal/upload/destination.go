// Package upload sends the records of files, or generated documents, to an event hub, to a queue or
// topic of Service Bus, or to a topic of Kafka.
package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/sender"
)

// The environment variables that hold the connection string by default.
const (
	EventHubVariable   = "EVENTHUB_CONNECTION_STRING"
	ServiceBusVariable = "SERVICEBUS_CONNECTION_STRING"
)

// Destination is where messages are sent: a hub, a queue or a topic.
type Destination struct {
	// Connection is the connection string, an address of Kafka such as kafka://127.0.0.1:9092, or
	// env:NAME for one of these in an environment variable. Default: that of [EventHubVariable] or
	// [ServiceBusVariable].
	Connection string `json:"connection,omitempty"`
	// Namespace is the host name of a namespace, such as contoso.servicebus.windows.net, to which
	// the default credential of Entra ID signs in. It takes the place of Connection. Default: none.
	Namespace string `json:"namespace,omitempty"`
	// Hub, Queue or Topic is the name of the entity. A hub's can be in the connection string.
	Hub   string `json:"hub,omitempty"`
	Queue string `json:"queue,omitempty"`
	Topic string `json:"topic,omitempty"`
	// KeyField or SessionField is the name of the field whose value is the partition key or the
	// session id.
	KeyField     string `json:"key_field,omitempty"`
	SessionField string `json:"session_field,omitempty"`
	// Create is how many partitions a topic of Kafka gets if it does not exist. Default: it must
	// exist.
	Create int32 `json:"-"`
	// Container is where bodies are stored that are larger than ClaimOver bytes: the name of a
	// container, its URL, or env:NAME for a URL in an environment variable. Default: all bodies are
	// sent.
	Container string `json:"claim_check,omitempty"`
	// ClaimOver is as in [sender.ClaimCheck].
	ClaimOver int `json:"claim_check_over,omitempty"`
	// Flag is the flag of Connection, for messages. Default: --to.
	Flag string `json:"-"`
	// WebSocket is how to connect. It is not in a report.
	WebSocket WebSocket `json:"-"`
	// Input says how the files are read.
	Input records.Config `json:"input,omitzero"`
	Properties
}

// DestinationFlags are the flags that say where and how records are sent, and that a report holds.
var DestinationFlags = []string{"hub", "queue", "topic", "create", "key-field", "session-field",
	"subject", "subject-field", "reply-to", "ttl", "scheduled-field", "correlation-field",
	"content-type", "property", "property-field", "header", "claim-check", "claim-check-over", "encoding", "delimiter"}

// Withheld stands for a connection string in a report, which would hold a key.
const Withheld = "withheld"

// withoutSecrets returns the destination as a report may hold it.
func (d *Destination) withoutSecrets() *Destination {
	to := *d
	if to.Connection != "" && !strings.HasPrefix(to.Connection, "env:") && !isKafkaURL(to.Connection) {
		to.Connection = Withheld
	}
	return &to
}

// flag is the flag of Connection.
func (d *Destination) flag() string { return cmp.Or(d.Flag, "--to") }

// IsKafka reports whether the destination is a topic of Kafka.
func (d *Destination) IsKafka() bool {
	if d.Namespace != "" {
		return false
	}
	text, err := d.connectionString()
	return err == nil && isKafkaURL(text)
}

// IsServiceBus reports whether the destination is a queue or a topic of Service Bus.
func (d *Destination) IsServiceBus() bool { return (d.Queue != "" || d.Topic != "") && !d.IsKafka() }

// kind is what the destination is: hub, queue or topic.
func (d *Destination) kind() string {
	switch {
	case d.Queue != "":
		return "queue"
	case d.Topic != "":
		return "topic"
	}
	return "hub"
}

// String gives "hub flights".
func (d *Destination) String() string {
	return strings.TrimSpace(d.kind() + " " + d.Hub + d.Queue + d.Topic)
}

// connectionString returns the connection string, resolving env:NAME. Such a name keeps keys out
// of the list of processes.
func (d *Destination) connectionString() (string, error) {
	from := d.Connection
	switch {
	case from != "":
	case d.Queue != "" || d.Topic != "":
		from = "env:" + ServiceBusVariable
	default:
		from = "env:" + EventHubVariable
	}
	name, ok := strings.CutPrefix(from, "env:")
	if !ok {
		return from, wrongConnection(d.flag(), from)
	}
	value := os.Getenv(name)
	if value == "" {
		return "", usage.Errorf("the environment variable %s is not set: put the connection string there, or pass %s, or --namespace for Entra ID", name, d.flag())
	}
	return value, wrongConnection("the environment variable "+name, value)
}

// wrongConnection returns an error if a text is the connection string of another service.
func wrongConnection(where, text string) error {
	if err := eventhub.CheckConnectionString(text); err != nil {
		return usage.Errorf("%s: the connection string %v", where, err)
	}
	return nil
}

// transport is a connection to the destination.
type transport interface {
	sender.Transport
	MaxBatchBytes(context.Context) (int, error)
	Close(context.Context) error
}

// connections are open connections to a destination.
type connections struct {
	transports []transport
	maxBatch   int // in bytes
}

// connect opens n connections. It asks for the destination's properties first, so that a wrong
// connection string fails before anything is sent. batch limits the messages of a batch; 0 means
// as many as fit.
func (d *Destination) connect(ctx context.Context, n, batch int) (*connections, error) {
	if d.IsKafka() {
		return d.connectKafka(ctx, n, batch)
	}
	dial, err := d.azureDialer(ctx, batch)
	if err != nil {
		return nil, err
	}
	c := &connections{}
	for range n {
		t, err := dial()
		if err != nil {
			c.close(ctx)
			return nil, err
		}
		c.transports = append(c.transports, t)
	}
	if c.maxBatch, err = c.transports[0].MaxBatchBytes(ctx); err != nil {
		c.close(ctx)
		return nil, d.explain(err)
	}
	return c, nil
}

// azureDialer returns a function that opens a connection to an event hub, or to Service Bus. It
// asks for a hub's properties.
func (d *Destination) azureDialer(ctx context.Context, batch int) (dial func() (transport, error), err error) {
	bus := &sender.ServiceBusConfig{MaxMessages: batch, Client: azservicebus.ClientOptions{ApplicationID: "sluice"}}
	hub := &sender.EventHubConfig{MaxMessages: batch, Client: azeventhubs.ProducerClientOptions{ApplicationID: "sluice"}}
	reading := &eventhub.Config{}
	if d.Namespace != "" {
		if err := d.WebSocket.apply(reading, bus, hub, false); err != nil {
			return nil, err
		}
		return d.entraDialer(ctx, bus, hub, reading)
	}
	connection, err := d.connectionString()
	if err != nil {
		return nil, err
	}
	props, unread := azeventhubs.ParseConnectionString(connection)
	if err := d.WebSocket.apply(reading, bus, hub, unread == nil && props.Emulator); err != nil {
		return nil, err
	}
	if d.IsServiceBus() {
		return func() (transport, error) {
			t, err := sender.OpenServiceBus(connection, d.Queue+d.Topic, bus)
			return understood(t, err)
		}, nil
	}
	name := d.Hub
	if unread == nil && props.EntityPath != nil {
		name = "" // the SDK refuses a hub that is named twice
	} else if unread == nil && name == "" {
		return nil, usage.Errorf("the destination is missing: pass --hub NAME (the connection string has no EntityPath), --queue NAME or --topic NAME")
	}
	source, err := eventhub.New(connection, d.Hub, reading)
	if err != nil {
		return nil, err
	}
	return func() (transport, error) {
		t, err := sender.OpenEventHub(connection, name, hub)
		return understood(t, err)
	}, describeHub(ctx, source)
}

// understood replaces the error of a connection string, which may quote it.
func understood(t transport, err error) (transport, error) {
	if err != nil {
		return nil, errors.New("connection string: not understood")
	}
	return t, nil
}

// entraDialer is azureDialer with the default credential of Entra ID.
func (d *Destination) entraDialer(ctx context.Context, bus *sender.ServiceBusConfig, hub *sender.EventHubConfig, reading *eventhub.Config) (dial func() (transport, error), err error) {
	if d.Hub+d.Queue+d.Topic == "" {
		return nil, usage.Errorf("the destination is missing: pass --hub NAME, --queue NAME or --topic NAME")
	}
	credential, err := d.defaultCredential(ctx)
	if err != nil {
		return nil, err
	}
	if d.IsServiceBus() {
		return func() (transport, error) {
			return sender.OpenServiceBusWithCredential(d.Namespace, d.Queue+d.Topic, credential, bus)
		}, nil
	}
	source, err := eventhub.NewWithCredential(d.Namespace, d.Hub, credential, reading)
	if err != nil {
		return nil, err
	}
	return func() (transport, error) {
		return sender.OpenEventHubWithCredential(d.Namespace, d.Hub, credential, hub)
	}, describeHub(ctx, source)
}

// describeHub asks for a hub's properties, and closes the source.
func describeHub(ctx context.Context, source *eventhub.Source) error {
	defer source.Close(ctx)
	_, err := source.Describe(ctx)
	return err
}

// close closes the connections, even if ctx has ended.
func (c *connections) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, t := range c.transports {
		_ = t.Close(ctx)
	}
}

// explain turns an error that a retry cannot fix into one clear line.
func (d *Destination) explain(err error) error {
	var bus *azservicebus.Error
	switch {
	case d.IsKafka():
		return err // it says already what to do
	case errors.Is(err, sender.ErrPermanent):
	case errors.As(err, &bus) && bus.Code == azservicebus.CodeConnectionLost:
		return fmt.Errorf("%s: connect: %s", d, strings.TrimPrefix(bus.Error(), "(connlost): "))
	default:
		return fmt.Errorf("%s: %w", d, err)
	}
	service := "Event Hubs"
	if d.IsServiceBus() {
		service = "Service Bus"
	}
	var hub *azeventhubs.Error
	var answer *amqp.Error
	is := func(condition amqp.ErrCond) bool { return errors.As(err, &answer) && answer.Condition == condition }
	switch {
	case is(amqp.ErrCondNotFound), errors.As(err, &bus) && bus.Code == azservicebus.CodeNotFound:
		return fmt.Errorf("%s: not found: check its name and the namespace", d)
	case is(amqp.ErrCondUnauthorizedAccess), errors.As(err, &bus) && bus.Code == azservicebus.CodeUnauthorizedAccess,
		errors.As(err, &hub) && hub.Code == azeventhubs.ErrorCodeUnauthorizedAccess:
		return fmt.Errorf("%s: not authorised: check the key and its right to send, or the role Azure %s Data Sender%s", d, service, serviceText(err))
	}
	text := serviceText(err)
	switch {
	case text == "":
		return fmt.Errorf("%s: %w", d, err)
	case d.SessionField == "" && strings.Contains(text, "SessionId"):
		return fmt.Errorf("%s: it accepts only messages with a session: pass --session-field%s", d, text)
	}
	return fmt.Errorf("%s: refused%s", d, text)
}

var description = regexp.MustCompile(`Description: (.*?)\.?, Info: `)

// serviceText is the service's own description of an error, in parentheses, or empty. It is taken
// from the text, since not all errors of the SDKs can be unwrapped.
func serviceText(err error) string {
	if text := description.FindStringSubmatch(err.Error()); text != nil {
		return fmt.Sprintf(" (%s)", text[1])
	}
	return ""
}

// senderConfig spreads messages over the partitions, sends slow input without delay, and retries
// for some seconds during an outage.
func senderConfig() *sender.Config {
	return &sender.Config{Spread: true, MaxWait: 50 * time.Millisecond, Attempts: 6, RetryMax: 5 * time.Second, DrainTimeout: 3 * time.Second}
}

const jsonType = "application/json"

// takeOver adds to a message what the event of its record had, and the flags do not say.
func (d *Destination) takeOver(m *sender.Message, e *driver.Event) {
	if m.SessionID == "" {
		m.Key = cmp.Or(m.Key, e.Key)
	}
	m.ContentType = cmp.Or(d.ContentType, e.ContentType)
	m.CorrelationID = cmp.Or(m.CorrelationID, e.CorrelationID)
	given := m.Properties
	m.Properties = maps.Clone(e.Properties)
	for name, value := range given {
		if m.Properties == nil {
			m.Properties = map[string]any{}
		}
		m.Properties[name] = value
	}
}

// message makes the message of a record.
func (d *Destination) message(key string, body []byte) (sender.Message, error) {
	m := sender.Message{Key: key, ContentType: cmp.Or(d.ContentType, jsonType), Body: body}
	if d.SessionField != "" {
		m.Key, m.SessionID = "", key
	}
	return m, d.set(&m)
}
