package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/sender"
)

const aboutSend = `Send records to an event hub, to a queue or topic of Service Bus, or to a topic of
Kafka. The input is JSON, one value to a line, one after the other or in an array; the
features of GeoJSON; or CSV with a header, whose rows become JSON objects. It may be
compressed with gzip or zstd. Of the Avro files of Event Hubs Capture the events are sent
again, with their key, properties and content type. With "-", or without a file, records are read from standard
input.

An input that is none of this, or is not UTF-8, is refused before its first record is
sent: --encoding and --delimiter read other text. A record that cannot be sent, such as one
without the key, is rejected: all others are sent, and the exit code is 1.

Batches are as large as the service allows. Records with the same key, or with the
same session, keep their order. Records with neither are spread over the partitions.

With --namespace, Entra ID's default credential signs in: that of az login, of a managed
identity, or of AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET. It needs the
role Azure Event Hubs Data Sender or Azure Service Bus Data Sender.

With --report, a file says in JSON lines which records were sent and which were not, also
after the process was killed. send --resume FILE sends those that are not known to be
sent, from the same files to the same destination, in their order. A record with an
unknown outcome may be stored already: it is then stored twice, with the same message id.

For Kafka, --to is kafka://HOST:9092, or kafka+tls://HOST:9093 over TLS; several brokers
are separated by commas. What tls and sasl say in a pipeline file is in the environment:
  KAFKA_CA_FILE                     certificates to trust beside those of the system
  KAFKA_CERT_FILE, KAFKA_KEY_FILE   the certificate of this client, and its key
  KAFKA_SERVER_NAME                 the name in the brokers' certificates, if not the host
  KAFKA_SASL                        plain, scram-sha-256, scram-sha-512, oauthbearer, entra
  KAFKA_USER, KAFKA_PASSWORD        for plain and scram
  KAFKA_TOKEN_FILE                  for oauthbearer: a file with the token, or a server:
  KAFKA_TOKEN_URL, KAFKA_CLIENT_ID, KAFKA_CLIENT_SECRET, KAFKA_SCOPE

`

func (a *app) send() *cobra.Command {
	var to upload.Destination
	var report reportFlags
	var rate float64
	var generated upload.Generated
	var input inputFlags
	cmd := &cobra.Command{
		Use:   "send {--hub | --queue | --topic} NAME [FILE… | --generate N]",
		Short: "Send records from files, or generated documents, to an event hub, a queue or a topic",
		Long:  aboutSend + aboutGenerate,
		Example: `  sluice send --hub flights --key-field origin flights.csv
  sluice send --queue orders --session-field customer orders.ndjson
  sluice send --to kafka://127.0.0.1:9092 --topic flights --create 4 flights.csv
  sluice send --namespace contoso.servicebus.windows.net --hub flights flights.csv
  sluice send --hub flights --encoding windows-1252 --delimiter ';' flights.csv.gz
  sluice send --hub flights --report flights.report flights.csv
  sluice send --resume flights.report
  sluice send --hub docs --generate 4200000 --replicas 4 --batch 500`,
	}
	cmd.RunE = a.runE(func(ctx context.Context, files []string) error {
		if err := checkGenerated(cmd, &generated, files); err != nil {
			return err
		}
		files, err := report.apply(cmd, &to, files)
		if err != nil {
			return err
		}
		if err := input.apply(cmd, &to); err != nil {
			return err
		}
		if err := checkDestination(cmd, &to); err != nil {
			return err
		}
		if rate < 0 {
			return usage.Errorf("--rate %v: must be positive", rate)
		}
		ctx, stop := term.UntilInterrupted(ctx)
		defer stop()
		u := &upload.Uploader{Destination: &to, Rate: rate, Out: a.out, Screen: a.screen, Log: a.log, Report: report.file(), Resume: report.resume != ""}
		switch {
		case generated.Count > 0:
			return u.Generated(ctx, &generated)
		case len(files) == 0:
			files = []string{"-"}
		}
		return u.Files(ctx, files)
	})
	f := cmd.Flags()
	addDestination(f, &to)
	input.add(f)
	report.add(f)
	f.Float64Var(&rate, "rate", 0, "largest `number` of records per second (default no limit)")
	addGenerated(f, &generated)
	return cmd
}

func addDestination(f *pflag.FlagSet, d *upload.Destination) {
	f.StringVar(&d.Connection, "to", "", "`connection` string, address of Kafka, or env:NAME for one in an environment variable\n(default env:"+upload.EventHubVariable+", for queues and topics env:"+upload.ServiceBusVariable+")")
	f.StringVar(&d.Namespace, "namespace", "", "`host` name of a namespace, such as contoso.servicebus.windows.net, to sign in with Entra ID instead of --to")
	f.BoolVar(&d.WebSocket.Enabled, "websocket", false, "connect over WebSockets on port 443, for networks that allow only HTTPS")
	f.StringVar(&d.WebSocket.Proxy, "proxy", "", "`URL` of a proxy for --websocket, or env:NAME for one with a password in an environment variable\n(default that of HTTPS_PROXY)")
	f.StringVar(&d.Hub, "hub", "", "`name` of the hub (default the connection string's EntityPath)")
	f.StringVar(&d.Queue, "queue", "", "`name` of a Service Bus queue")
	f.StringVar(&d.Topic, "topic", "", "`name` of a Service Bus topic, or of a topic of Kafka")
	f.Int32Var(&d.Create, "create", 0, "create the topic of Kafka with this `number` of partitions if it does not exist")
	f.StringVar(&d.KeyField, "key-field", "", "`field` whose value is the partition key")
	f.StringVar(&d.SessionField, "session-field", "", "`field` whose value is the session id, for a queue or topic")
	f.StringVar(&d.Subject, "subject", "", "`text` that is the subject (label) of all messages, for a queue or topic of Service Bus")
	f.StringVar(&d.SubjectField, "subject-field", "", "`field` whose value is the subject, for a queue or topic of Service Bus")
	f.StringVar(&d.ReplyTo, "reply-to", "", "`name` of the queue for answers, for a queue or topic of Service Bus")
	f.DurationVar(&d.TTL, "ttl", 0, "how long a message lives, for a queue or topic of Service Bus (default as the queue or topic says)")
	f.StringVar(&d.ScheduledField, "scheduled-field", "", "`field` with the time when the message is enqueued, in RFC 3339, for a queue or topic of Service Bus")
	f.StringVar(&d.ContentType, "content-type", "", "`type` of all bodies (default application/json)")
	f.StringArrayVar(&d.All, "property", nil, "property `NAME=TEXT` of all messages, a header in Kafka; can be repeated")
	f.StringArrayVar(&d.PropertyFields, "property-field", nil, "`field` that is a property of the same name too, with its type; can be repeated")
	f.StringArrayVar(&d.Headers, "header", nil, "header `NAME=TEXT` of all messages, for a topic of Kafka; can be repeated, also with the same name")
	f.StringVar(&d.CorrelationField, "correlation-field", "", "`field` whose value is the correlation id")
	f.StringVar(&d.Container, "claim-check", "", "`container` of Azure Blob Storage for large bodies: its URL, its name with "+upload.StorageVariable+", or env:NAME\nfor a URL with a signature (default: all bodies are sent)")
	f.IntVar(&d.ClaimOver, "claim-check-over", 0, "size in `bytes` above which a body goes to --claim-check (default 196608)")
}

// checkProperties returns what is wrong with the flags of messages' properties.
func checkProperties(cmd *cobra.Command, d *upload.Destination) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"subject", "subject-field", "reply-to", "ttl", "scheduled-field"} {
		if given(name) && !d.IsServiceBus() {
			return usage.Errorf("--%s needs --queue or --topic: only Service Bus has it", name)
		}
	}
	for _, name := range []string{"subject-field", "scheduled-field", "correlation-field", "property-field", "encoding", "delimiter"} {
		if given(name) && given("generate") {
			return usage.Errorf("--%s: generated documents are JSON with the fields id, key and payload only", name)
		}
	}
	switch {
	case given("content-type") && d.ContentType == "":
		return usage.Errorf("--content-type: must not be empty")
	case len(d.Headers) > 0 && !d.IsKafka():
		return usage.Errorf("--header needs a topic of Kafka: use --property")
	case given("claim-check") && d.Container == "":
		return usage.Errorf("--claim-check: must not be empty")
	case given("claim-check-over") && !given("claim-check"):
		return usage.Errorf("--claim-check-over needs --claim-check")
	case given("claim-check-over") && d.ClaimOver < 1:
		return usage.Errorf("--claim-check-over %d: must be positive", d.ClaimOver)
	case strings.Contains(d.Container, "?"):
		return usage.Errorf("--claim-check: the URL has a signature, which other users of this machine can read on a command line: put it into an environment variable and write env:NAME")
	case given("subject") && given("subject-field"):
		return usage.Errorf("--subject and --subject-field exclude each other")
	case given("ttl") && (d.TTL < time.Millisecond || d.TTL > sender.MaxTTL):
		return usage.Errorf("--ttl %v: must be from 1ms to %v", d.TTL, sender.MaxTTL)
	}
	return d.CheckNames(d.IsKafka())
}

// checkDestination returns what is wrong with the flags of the destination.
func checkDestination(cmd *cobra.Command, d *upload.Destination) error {
	given := ""
	for _, name := range []string{"hub", "queue", "topic"} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case !flag.Changed:
		case flag.Value.String() == "":
			return usage.Errorf("--%s: must not be empty", name)
		case given != "":
			return usage.Errorf("--%s and --%s exclude each other", given, name)
		default:
			given = name
		}
	}
	if cmd.Flags().Changed("namespace") {
		if d.Connection != "" {
			return usage.Errorf("--to and --namespace exclude each other: a connection string holds the namespace and its key")
		}
		if err := upload.CheckNamespace(d.Namespace); err != nil {
			return err
		}
	}
	switch {
	case d.SessionField != "" && d.IsKafka():
		return usage.Errorf("--session-field: Kafka has no sessions: use --key-field")
	case cmd.Flags().Changed("create") && !d.IsKafka():
		return usage.Errorf("--create needs an address of Kafka in --to, like kafka://127.0.0.1:9092")
	case cmd.Flags().Changed("create") && d.Create < 1:
		return usage.Errorf("--create %d: must be positive", d.Create)
	case d.SessionField != "" && !d.IsServiceBus():
		return usage.Errorf("--session-field needs --queue or --topic; for an event hub use --key-field")
	case d.SessionField != "" && d.KeyField != "":
		return usage.Errorf("--key-field and --session-field exclude each other: a session id is the partition key too")
	}
	if d.WebSocket.Enabled && d.IsKafka() {
		return usage.Errorf("--websocket: Kafka has no WebSockets")
	}
	if err := d.WebSocket.Check(); err != nil {
		return err
	}
	return checkProperties(cmd, d)
}
