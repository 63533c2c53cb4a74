package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/selfsigned"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
)

// soundTopic is a valid file, which the tests modify.
const soundTopic = `name: flights
source:
  kafka:
    brokers: ${KAFKA_BROKERS}
    topic: flights
partitions: all
database: ${DATABASE_URL}
target:
  insert:
    table: flights
    create: true
    columns:
      hub_partition: partition
      sequence_number: sequence
`

// editTopic replaces parts of the sound file: old, new, old, new, …
func editTopic(t *testing.T, edits ...string) string {
	t.Helper()
	return editText(t, soundTopic, edits...)
}

func editText(t *testing.T, file string, edits ...string) string {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(file, edits[i]) {
			t.Fatalf("the file has no %q", edits[i])
		}
		file = strings.Replace(file, edits[i], edits[i+1], 1)
	}
	return file
}

// kafkaEnvironment is the environment of the sound file.
func kafkaEnvironment(pairs ...string) func(string) (string, bool) {
	return environment(append([]string{"KAFKA_BROKERS=Broker-1:9092, broker-2:9093,broker-1:9092", "KAFKA_PASSWORD=hunter2"}, pairs...)...)
}

func parseTopic(t *testing.T, file string) *Pipeline {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKafkaSource(t *testing.T) {
	p := parseTopic(t, soundTopic)
	if p.System != Kafka || p.Group != (sluice.Group{Topic: "flights", Name: "sluice"}) || p.Start() != sluice.Earliest() {
		t.Errorf("%s %v from %v", p.System, p.Group, p.Start())
	}
	topic := p.source.(*kafkaTopic)
	if fmt.Sprint(topic.cluster.brokers) != "[broker-1:9092 broker-2:9093]" || topic.cluster.tls != nil || topic.cluster.sasl != nil || topic.readUncommitted || topic.progressGroup != "" {
		t.Errorf("%+v, cluster %+v", topic, topic.cluster)
	}
	if !targetOf[*tableTarget](p).mapping.raw {
		t.Error("null bodies are not known")
	}

	p = parseTopic(t, editTopic(t, "    topic: flights\n", `    topic: flights
    group: g
    checkpoint_namespace: contoso
    isolation: read_uncommitted
    headers: amqp
    progress_group: g
    tls: {server_name: kafka.example.com}
    sasl:
      scram:
        user: me
        password: ${KAFKA_PASSWORD}
  start: offset 4096
`))
	topic = p.source.(*kafkaTopic)
	if p.Group != (sluice.Group{Namespace: "contoso", Topic: "flights", Name: "g"}) || p.Start() != sluice.FromSequence(4096) {
		t.Errorf("%v from %v", p.Group, p.Start())
	}
	c := topic.cluster
	if !topic.readUncommitted || topic.headers != kafka.AMQPHeaders || topic.progressGroup != "g" || c.tls.ServerName != "kafka.example.com" || *c.sasl.scram != (userPassword{"me", "hunter2"}) || c.sasl.hash != sha512 {
		t.Errorf("%+v, cluster %+v", topic, c)
	}
}

// TestKafkaClientCertificate: a certificate that was renewed is used without a restart.
func TestKafkaClientCertificate(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) *selfsigned.Certificate {
		c, err := selfsigned.New(&selfsigned.Config{CommonName: name, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), Root: true})
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string][]byte{"x.pem": c.CertPEM, "x.key": c.KeyPEM} {
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	write("first")
	p := parseTopic(t, editTopic(t, "    topic: flights\n", fmt.Sprintf("    topic: flights\n    tls:\n      ca_file: %[1]s/x.pem\n      cert_file: %[1]s/x.pem\n      key_file: %[1]s/x.key\n", dir)))
	cluster := p.source.(*kafkaTopic).cluster
	second := write("second")
	got, err := cluster.tls.GetClientCertificate(nil)
	if err != nil || string(got.Certificate[0]) != string(second.Certificate.Certificate[0]) || cluster.tls.RootCAs == nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestKafkaClientIsShared: the sources and targets of a cluster have one client, which ends with
// the last of them.
func TestKafkaClientIsShared(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(soundTopics), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.Stages[0].SourceAs("a")
	if err != nil {
		t.Fatal(err)
	}
	out, err := targetOf[*messageTarget](f.Stages[0]).transport()
	if err != nil {
		t.Fatal(err)
	}
	cluster := f.Stages[1].source.(*kafkaTopic).cluster
	client := cluster.client
	if client == nil || cluster.users != 2 {
		t.Fatalf("%d users of %v", cluster.users, client)
	}
	if err := first.Close(t.Context()); err != nil || cluster.client != client {
		t.Errorf("the client was closed with its first user: %v", err)
	}
	if err := out.Close(t.Context()); err != nil || cluster.client != nil || cluster.users != 0 {
		t.Errorf("%d users of %v, %v", cluster.users, cluster.client, err)
	}
	again, err := f.Stages[1].SourceAs("")
	if err != nil || cluster.client == nil || cluster.client == client || again.Group().Name != "sluice" {
		t.Fatalf("opened again: %v, %v", again, err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMessagesForKafka: an event of Kafka keeps its key, its headers and its null value, but not
// the stamp of an earlier stage; a hub's event without a body has an empty value.
func TestMessagesForKafka(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(editText(t, soundTopics, "        key: body.origin\n", "")), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	headers := []sluice.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}}
	for _, c := range []struct {
		event sluice.Event
		want  sender.Message
	}{
		{sluice.Event{Key: "\xff", Headers: headers, Properties: map[string]any{"a": "2"}, MessageID: "m"}, sender.Message{Key: "\xff", Headers: headers, MessageID: "m"}},
		{sluice.Event{EmptyKey: true, Body: []byte{}}, sender.Message{EmptyKey: true, Body: []byte{}}},
	} {
		got, err := targetOf[*messageTarget](f.Stages[0]).messages(t.Context(), &c.event)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(*got[0], c.want) {
			t.Errorf("%+v\nbecame %+v, %v\nwant %+v", c.event, got[0], err, c.want)
		}
	}

	f, err = ParseFile("p.yaml", []byte(editText(t, soundTopics, "{kafka: {topic: flights}}", "\n      eventhub:\n        connection: ${EVENTHUB_CONNECTION_STRING}\n        hub: flights")), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	got, err := targetOf[*messageTarget](f.Stages[0]).messages(t.Context(), &sluice.Event{Properties: map[string]any{"a": int64(2)}, Body: []byte(`{"origin":""}`)})
	want := sender.Message{EmptyKey: true, Properties: map[string]any{"a": int64(2)}, Body: []byte(`{"origin":""}`)}
	if err != nil || !reflect.DeepEqual(*got[0], want) {
		t.Errorf("%+v, %v", got, err)
	}
	targetOf[*messageTarget](f.Stages[0]).group = nil
	targetOf[*messageTarget](f.Stages[0]).compile()
	if got, err = targetOf[*messageTarget](f.Stages[0]).messages(t.Context(), &sluice.Event{}); err != nil || got[0].Body == nil {
		t.Errorf("an event without a body became %+v, %v", got, err)
	}

	// From Kafka to a hub there are no headers, but properties.
	f, err = ParseFile("p.yaml", []byte(editText(t, soundTopics, "      kafka:\n        topic: clean\n        key: body.origin\n", "      eventhub:\n        connection: ${EVENTHUB_CONNECTION_STRING}\n        hub: clean\n")), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	got, err = targetOf[*messageTarget](f.Stages[0]).messages(t.Context(), &sluice.Event{EmptyKey: true, Headers: headers, Properties: map[string]any{"a": "2"}})
	want = sender.Message{Properties: map[string]any{"a": "2"}}
	if err != nil || !reflect.DeepEqual(*got[0], want) {
		t.Errorf("%+v, %v", got[0], err)
	}
}

func TestKafkaErrors(t *testing.T) {
	with := func(keys string) string { return editTopic(t, "    topic: flights\n", "    topic: flights\n"+keys) }
	for _, c := range []struct {
		file string
		env  []string
		want string
	}{
		{editTopic(t, "    topic: flights\n", ""), nil, "p.yaml:3:3: source.kafka: needs one of topic, topics and topic_pattern"},
		{editTopic(t, "topic:", "topicx:"), nil, "p.yaml:5:5: source.kafka.topicx: unknown key, did you mean topic?"},
		{editTopic(t, "    brokers: ${KAFKA_BROKERS}\n", ""), nil, "p.yaml:3:3: source.kafka: brokers are missing: write ${KAFKA_BROKERS}, or host:port, host:port"},
		{soundTopic, []string{"KAFKA_BROKERS"}, "p.yaml:4:5: source.kafka.brokers: the environment variable KAFKA_BROKERS is not set"},
		{soundTopic, []string{"KAFKA_BROKERS=me:hunter2@a:9092"}, "p.yaml:4:5: source.kafka.brokers: broker 1: not a host"},
		{soundTopic, []string{"KAFKA_BROKERS=,"}, "p.yaml:4:5: source.kafka.brokers: no broker: give at least one"},
		{soundTopic, []string{"KAFKA_BROKERS=a:0"}, "p.yaml:4:5: source.kafka.brokers: "},
		{editTopic(t, "topic: flights", "topic: flights/x"), nil, `p.yaml:5:5: source.kafka.topic: "flights/x": not a name of a topic: write up to 249 letters, digits, dots, - and _`},
		{editTopic(t, "topic: flights", "topic: .."), nil, `p.yaml:5:5: source.kafka.topic: "..": not a name of a topic`},
		{editTopic(t, "  kafka:\n", "  eventhub:\n    connection: ${EVENTHUB_CONNECTION_STRING}\n    hub: flights\n  kafka:\n"), nil, "p.yaml:2:1: source: needs one of eventhub, kafka and outbox"},
		{editTopic(t, "  kafka:\n    brokers: ${KAFKA_BROKERS}\n    topic: flights\n", "  start: latest\n"), nil, "p.yaml:2:1: source: needs one of eventhub, kafka and outbox"},
		{with("    isolation: committed\n"), nil, `p.yaml:6:5: source.kafka.isolation: "committed": `},
		{with("    headers: json\n"), nil, `p.yaml:6:5: source.kafka.headers: "json": write one of amqp, bytes`},
		{with("    consumer_group: x\n"), nil, `p.yaml:6:5: source.kafka.consumer_group: unknown key`},
		{with("    hub: x\n"), nil, `p.yaml:6:5: source.kafka.hub: unknown key`},
		{with("    tls: yes please\n"), nil, `p.yaml:6:5: source.kafka.tls: "yes please": write one of true, false`},
		{with("    tls: {ca_file: /nowhere/ca.pem}\n"), nil, `p.yaml:6:11: source.kafka.tls.ca_file: certificates: open /nowhere/ca.pem: no such file or directory`},
		{with("    tls: {cert_file: x.pem}\n"), nil, `p.yaml:6:5: source.kafka.tls: needs cert_file and key_file together`},
		{with("    tls: {cert_file: /nowhere/x.pem, key_file: /nowhere/x.key}\n"), nil, `p.yaml:6:5: source.kafka.tls: certificate of this client: open /nowhere/x.pem: no such file or directory`},
		{with("    sasl: {plain: {user: me, password: hunter2}}\n"), nil, `p.yaml:6:30: source.kafka.sasl.plain.password: is a secret: put it into an environment variable and write ${KAFKA_PASSWORD}`},
		{with("    sasl: {plain: {user: me}}\n"), nil, `p.yaml:6:12: source.kafka.sasl.plain.password: is missing`},
		{with("    sasl: {gssapi: {}}\n"), nil, `p.yaml:6:12: source.kafka.sasl.gssapi: unknown key`},
		{with("    sasl: {entra: {credential: default}, oauthbearer: {token_file: x}}\n"), nil, `p.yaml:6:5: source.kafka.sasl: needs one of plain, scram, oauthbearer and entra`},
		{with("    sasl:\n      scram:\n        hash: sha-1\n        user: me\n        password: ${KAFKA_PASSWORD}\n"), nil, `p.yaml:8:9: source.kafka.sasl.scram.hash: "sha-1": `},
		{with("    sasl: {oauthbearer: {scope: x}}\n"), nil, `p.yaml:6:12: source.kafka.sasl.oauthbearer: needs token_file, or token_url, client_id and client_secret`},
		{with("    sasl: {oauthbearer: {token_url: example.com}}\n"), nil, `p.yaml:6:26: source.kafka.sasl.oauthbearer.token_url: "example.com": write a URL, https://…`},
		{with("    tls: false\n    sasl: {entra: {credential: default}}\n"), nil, `p.yaml:3:3: source.kafka: sasl.entra needs tls: true`},
		{with("  start: offset @latest\n"), nil, `p.yaml:6:3: source.start: "offset @latest": an offset of Kafka is a whole number, such as offset 4096`},
	} {
		_, err := Parse("p.yaml", []byte(c.file), kafkaEnvironment(c.env...))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// soundTopics is a valid file with stages.
const soundTopics = `kafka:
  brokers: ${KAFKA_BROKERS}
partitions: all
database: ${DATABASE_URL}
stages:
  clean:
    source: {kafka: {topic: flights}}
    target:
      kafka:
        topic: clean
        key: body.origin
  table:
    source: {kafka: {topic: clean}}
    target:
      insert:
        table: flights
        columns: {sequence_number: sequence}
`

func TestKafkaStages(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(soundTopics), kafkaEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	clean, table := f.Stages[0], f.Stages[1]
	if from := table.StampsFrom(); len(from) != 1 || from[0].Topic != "flights" {
		t.Errorf("stamps are believed of %v", from)
	}
	if clean.source.(*kafkaTopic).cluster != table.source.(*kafkaTopic).cluster {
		t.Error("the stages have a connection pool each")
	}
	if !targetOf[*messageTarget](clean).mapping.raw {
		t.Error("null bodies are not known")
	}
	for _, c := range []struct{ file, want string }{
		{editText(t, soundTopics, "kafka: {topic: clean}", "kafka: {topic: flights}"), `p.yaml:12:3: stages.table: reads topic flights in the consumer group sluice as stage clean does: each needs a consumer group of its own`},
		{editText(t, soundTopics, "        topic: clean\n", "        topic: flights\n"), `p.yaml:9:7: stages.clean.target.kafka: topic flights is the source of the pipeline: events would circulate for ever`},
		{editText(t, soundTopics, "        topic: clean\n", "        tls: true\n        topic: clean\n"), `p.yaml:9:7: stages.clean.target.kafka: tls, sasl, client_id and timeout go with brokers: write brokers here too`},
		{editText(t, soundTopics, "  brokers: ${KAFKA_BROKERS}\n", "  tls: true\n"), `p.yaml:1:1: kafka.brokers: is missing`},
		{editText(t, soundTopics, "        topic: clean\n", ""), `p.yaml:9:7: stages.clean.target.kafka.topic: is missing`},
	} {
		if _, err := ParseFile("p.yaml", []byte(c.file), kafkaEnvironment()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	memory := "  figures:\n    source: {kafka: {topic: clean, group: f, progress_group: f}}\n    memory: {group: {hour: hour(body.departure)}, figures: {n: count}}\n    target: {kafka: {topic: figures}}\n"
	if _, err := ParseFile("p.yaml", []byte(soundTopics+memory), kafkaEnvironment()); err == nil || err.Error() != "p.yaml:19:46: stages.figures.source.kafka.progress_group: cannot be combined with memory, which has no checkpoints to publish: remove it" {
		t.Errorf("got %v", err)
	}
	// Names that differ in case are two topics and two groups, and a cluster is one whichever of
	// its brokers are named.
	if _, err := ParseFile("p.yaml", []byte(editText(t, soundTopics, "kafka: {topic: clean}", "kafka: {topic: Flights}")), kafkaEnvironment()); err != nil {
		t.Error(err)
	}
	f, err = ParseFile("p.yaml", []byte(editText(t, soundTopics, "kafka: {topic: clean}", "kafka: {topic: clean, brokers: 'broker-3:9092, broker-2:9093'}")), kafkaEnvironment())
	if err != nil || len(f.Stages[1].StampsFrom()) != 1 {
		t.Errorf("%v", err)
	}
}

// TestMappingOfKafkaEvents: what only Kafka has becomes values of a row.
func TestMappingOfKafkaEvents(t *testing.T) {
	columns := func(text string) string {
		return editTopic(t, "      hub_partition: partition\n", "      hub_partition: partition\n"+text)
	}
	created := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		columns string
		event   sluice.Event
		want    string
	}{
		"text key":              {"      key: key\n", sluice.Event{Key: "SAN"}, "SAN"},
		"no key":                {"      key: key\n", sluice.Event{}, "<nil>"},
		"empty key":             {"      key: {from: key, required: true}\n", sluice.Event{EmptyKey: true}, ""},
		"binary key as text":    {"      key: key\n", sluice.Event{Key: "\xff\x00"}, "is not UTF-8 (the type bytes takes every value)"},
		"binary key":            {"      key: {from: key, type: bytes}\n", sluice.Event{Key: "\xff\x00"}, "[255 0]"},
		"text key as bytes":     {"      key: {from: key, type: bytes}\n", sluice.Event{Key: "SAN"}, "[83 65 78]"},
		"text header as bytes":  {"      h: {from: properties.h, type: bytes}\n", sluice.Event{Properties: map[string]any{"h": "SAN"}}, "[83 65 78]"},
		"either as bytes":       {"      h: {from: 'coalesce(properties.none, key)', type: bytes}\n", sluice.Event{Key: "SAN"}, "[83 65 78]"},
		"key of a format":       {"      key: {from: key, type: bytes, format: hex}\n", sluice.Event{Key: "00ff"}, "[0 255]"},
		"binary key in hex":     {"      key: {from: key, type: bytes, format: hex}\n", sluice.Event{Key: "\xff"}, "is not hex"},
		"header of a format":    {"      h: {from: properties.h, type: bytes, format: base64}\n", sluice.Event{Properties: map[string]any{"h": []byte("AP8=")}}, "[0 255]"},
		"header as integer":     {"      h: {from: properties.h, type: integer}\n", sluice.Event{Properties: map[string]any{"h": "42"}}, "42"},
		"created":               {"      at: created\n", sluice.Event{Created: created}, "2026-01-31 08:00:00 +0000 UTC"},
		"not created":           {"      at: created\n", sluice.Event{Enqueued: created}, "<nil>"},
		"tombstone":             {"      b: body\n", sluice.Event{}, "column b: body: is null"},
		"optional tombstone":    {"      b: {from: body, required: false}\n", sluice.Event{}, "<nil>"},
		"tombstone as JSON":     {"      b: {from: body, type: json, required: false}\n", sluice.Event{}, "<nil>"},
		"value in a tombstone":  {"      b: body.delay\n", sluice.Event{}, "column b: body.delay: is null"},
		"optional in tombstone": {"      b: {from: body.delay, required: false}\n", sluice.Event{}, "<nil>"},
		"default in tombstone":  {"      b: {from: body.delay, default: none}\n", sluice.Event{}, "none"},
		"empty value":           {"      b: body\n", sluice.Event{Body: []byte{}}, "[]"},
		"path in empty value":   {"      b: {from: body.delay, required: false}\n", sluice.Event{Body: []byte{}}, "body: "},
	} {
		m := targetOf[*tableTarget](parseTopic(t, columns(c.columns))).mapping
		rows, err := m.rows([]*sluice.Event{&c.event}, nil)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(rows[0][1])
		}
		if err == nil && got != c.want || err != nil && (!strings.Contains(got, c.want) || c.want == "") {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
