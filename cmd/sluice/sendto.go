package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/sender"
)

// Where connection strings are looked for.
const (
	connectionVariable = "EVENTHUB_CONNECTION_STRING"
	busVariable        = "SERVICEBUS_CONNECTION_STRING"
)

// destination is what messages are sent to: a hub, a queue or a topic.
type destination struct {
	to, hub, queue, topic  string
	keyField, sessionField string
}

func (d *destination) add(f *pflag.FlagSet) {
	f.StringVar(&d.to, "to", "", "`connection` string, or env:NAME for that of an environment variable\n(default env:"+connectionVariable+", for queues and topics env:"+busVariable+")")
	f.StringVar(&d.hub, "hub", "", "`name` of the hub (default that of the connection string's EntityPath)")
	f.StringVar(&d.queue, "queue", "", "`name` of a queue of Service Bus")
	f.StringVar(&d.topic, "topic", "", "`name` of a topic of Service Bus")
	f.StringVar(&d.keyField, "key-field", "", "`field` whose value is the partition key")
	f.StringVar(&d.sessionField, "session-field", "", "`field` whose value is the session's id, for a queue or topic")
}

// check says what is wrong with how the flags were used.
func (d *destination) check(cmd *cobra.Command) error {
	given := ""
	for _, name := range []string{"hub", "queue", "topic"} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case !flag.Changed:
		case flag.Value.String() == "":
			return usage.Errorf("--%s: must not be empty", name)
		case given != "":
			return usage.Errorf("--%s and --%s: state one of them", given, name)
		default:
			given = name
		}
	}
	switch {
	case d.sessionField != "" && !d.isBus():
		return usage.Errorf("--session-field: goes with --queue or --topic; for an event hub see --key-field")
	case d.sessionField != "" && d.keyField != "":
		return usage.Errorf("--key-field and --session-field: state one of them, a session's id is its partition key")
	}
	return nil
}

func (d *destination) isBus() bool { return d.queue != "" || d.topic != "" }

// kind is what the destination is.
func (d *destination) kind() string {
	switch {
	case d.queue != "":
		return "queue"
	case d.topic != "":
		return "topic"
	}
	return "hub"
}

func (d *destination) String() string {
	return strings.TrimSpace(d.kind() + " " + d.hub + d.queue + d.topic)
}

// connection is the connection string.
func (d *destination) connection() (string, error) {
	switch {
	case d.to != "":
		return connectionString(d.to)
	case d.isBus():
		return connectionString("env:" + busVariable)
	}
	return connectionString("env:" + connectionVariable)
}

// transport is a way to the destination.
type transport interface {
	sender.Transport
	MaxBatchBytes(context.Context) (int, error)
	Close(context.Context) error
}

// road is the connections to a destination, and the bytes that a batch may have.
type road struct {
	transports []transport
	limit      int
}

// open makes n connections. It finds out what is there before anything is sent,
// so that what is wrong with the connection shows clearly. Batches have so many
// messages at most, 0 for as many as fit.
func (d *destination) open(ctx context.Context, n, batch int) (*road, error) {
	connection, err := d.connection()
	if err != nil {
		return nil, err
	}
	if !d.isBus() {
		if props, err := azeventhubs.ParseConnectionString(connection); err == nil && props.EntityPath == nil && d.hub == "" {
			return nil, usage.Errorf("say where to: --hub NAME, as the connection string has no EntityPath, --queue NAME or --topic NAME")
		}
		if err := describeHub(ctx, connection, d.hub); err != nil {
			return nil, err
		}
	}
	r := &road{}
	for range n {
		t, err := d.dial(connection, batch)
		if err != nil {
			r.close(ctx)
			return nil, errors.New("connection string: not understood")
		}
		r.transports = append(r.transports, t)
	}
	if r.limit, err = r.transports[0].MaxBatchBytes(ctx); err != nil {
		r.close(ctx)
		return nil, d.explain(err)
	}
	return r, nil
}

// describeHub asks for a hub's properties.
func describeHub(ctx context.Context, connection, hub string) error {
	source, err := eventhub.New(connection, hub, nil)
	if err != nil {
		return err
	}
	defer source.Close(ctx)
	_, err = source.Describe(ctx)
	return err
}

func (d *destination) dial(connection string, batch int) (transport, error) {
	if d.isBus() {
		return sender.OpenServiceBus(connection, d.queue+d.topic, &sender.ServiceBusConfig{
			MaxMessages: batch, Client: azservicebus.ClientOptions{ApplicationID: "sluice"},
		})
	}
	hub := d.hub
	props, err := azeventhubs.ParseConnectionString(connection)
	if err != nil {
		return nil, err
	}
	if props.EntityPath != nil {
		hub = "" // the SDK wants it in one place only
	}
	return sender.OpenEventHub(connection, hub, &sender.EventHubConfig{
		MaxMessages: batch, Client: azeventhubs.ProducerClientOptions{ApplicationID: "sluice"},
	})
}

// close hangs up.
func (r *road) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, t := range r.transports {
		_ = t.Close(ctx)
	}
}

// explain makes one clear line of an error that trying again doesn't mend.
func (d *destination) explain(err error) error {
	var bus *azservicebus.Error
	switch {
	case errors.Is(err, sender.ErrPermanent):
	case errors.As(err, &bus) && bus.Code == azservicebus.CodeConnectionLost:
		return fmt.Errorf("%s: connect: %s", d, strings.TrimPrefix(bus.Error(), "(connlost): "))
	default:
		return fmt.Errorf("%s: %w", d, err)
	}
	service := "Event Hubs"
	if d.isBus() {
		service = "Service Bus"
	}
	var hub *azeventhubs.Error
	var answer *amqp.Error
	is := func(condition amqp.ErrCond) bool { return errors.As(err, &answer) && answer.Condition == condition }
	switch {
	case is(amqp.ErrCondNotFound), errors.As(err, &bus) && bus.Code == azservicebus.CodeNotFound:
		return fmt.Errorf("%s: not found: check its name, and the connection's namespace", d)
	case is(amqp.ErrCondUnauthorizedAccess), errors.As(err, &bus) && bus.Code == azservicebus.CodeUnauthorizedAccess,
		errors.As(err, &hub) && hub.Code == azeventhubs.ErrorCodeUnauthorizedAccess:
		return fmt.Errorf("%s: not authorised: check the key and its right to send, or the role Azure %s Data Sender%s", d, service, words(err))
	}
	said := words(err)
	switch {
	case said == "":
		return fmt.Errorf("%s: %w", d, err)
	case d.sessionField == "" && strings.Contains(said, "SessionId"):
		return fmt.Errorf("%s: it takes messages with sessions only: state --session-field%s", d, said)
	}
	return fmt.Errorf("%s: refused%s", d, said)
}

var description = regexp.MustCompile(`Description: (.*?)\.?, Info: `)

// words are the service's own, in parentheses, if it said something. The
// libraries' errors don't all tell what they are made of, but in their text.
func words(err error) string {
	if said := description.FindStringSubmatch(err.Error()); said != nil {
		return fmt.Sprintf(" (%s)", said[1])
	}
	return ""
}

// senderConfig is how all is sent: each partition gets its share, records that
// come slowly don't wait for each other, and an outage of some seconds is sat
// out.
func senderConfig() *sender.Config {
	return &sender.Config{Spread: true, MaxWait: 50 * time.Millisecond, Attempts: 6, RetryMax: 5 * time.Second, DrainTimeout: 3 * time.Second}
}

// message makes a message of a record.
func (d *destination) message(key string, body []byte) sender.Message {
	m := sender.Message{Key: key, ContentType: "application/json", Body: body}
	if d.sessionField != "" {
		m.Key, m.SessionID = "", key
	}
	return m
}
