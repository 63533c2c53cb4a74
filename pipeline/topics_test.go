package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func stageNames(f *File) (names []string) {
	for _, p := range f.Stages {
		names = append(names, p.Name+" of "+p.Group.Topic)
	}
	return names
}

// TestSeveralTopics: each topic, and each hub, has a stage of its own, which knows its name.
func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	const tests = "tests:\n  - name: topic\n    event: {body: '{}'}\n    expect: {row: {at: orders.eu-0}}\n"
	file := editTopic(t, "topic: flights", "topics: [orders.eu, orders.us]", "    columns:\n", "    columns:\n      topic: topic\n      at: concat(topic, \"-\", partition)\n") +
		"only: {topic: {not: orders.us}}\ndead_letters: {copy_to: {kafka: {topic: dead}}}\n" + tests
	f, err := ParseFile("p.yaml", []byte(file), kafkaEnvironment())
	suite.NoError(t, "parse", err)
	if got := stageNames(f); !slices.Equal(got, []string{"flights.orders.eu of orders.eu", "flights.orders.us of orders.us"}) {
		t.Fatalf("stages %q", got)
	}
	eu, us := f.Stages[0], f.Stages[1]
	if eu.source.(*kafkaTopic).cluster != us.source.(*kafkaTopic).cluster || len(eu.tests) != 1 || len(us.tests) != 0 {
		t.Errorf("clusters %p and %p, %d and %d tests", eu.source.(*kafkaTopic).cluster, us.source.(*kafkaTopic).cluster, len(eu.tests), len(us.tests))
	}
	if got := us.copies.redrive; got != "sluice deadletters retry --config p.yaml --stage flights.orders.us" {
		t.Error(got)
	}
	if differences, err := eu.tests[0].Run(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("%v, %v", differences, err)
	}
	e := &sluice.Event{Partition: "3"}
	for p, want := range map[*Pipeline]string{eu: "[orders.eu orders.eu-3 3 0]", us: "[orders.us orders.us-3 3 0]"} {
		rows, err := targetOf[*tableTarget](p).mapping.rows([]*sluice.Event{e}, nil)
		if err != nil || fmt.Sprint(rows[0]) != want {
			t.Errorf("row %v, want %s: %v", rows, want, err)
		}
		if takes, err := p.routing.only.matches(e); err != nil || takes != (p == eu) {
			t.Errorf("%v: only says %v, %v", p, takes, err)
		}
	}
	lineage, err := eu.Lineage()
	if err != nil || lineage[0].Topic != `"topic"` {
		t.Errorf("lineage %+v, %v", lineage, err)
	}
	_, err = ParseFilter("--where", "topic: orders.eu", Kafka)
	if err == nil || err.Error() != "--where: topic: is the same for all events here: choose the topic in place of that" {
		t.Error(err)
	}

	f, err = ParseFile("p.yaml", []byte(editText(t, soundStages, "    source: {eventhub: {hub: flights}, start: earliest}", "    source: {eventhub: {hubs: [flights, bookings]}, start: earliest}")), environment())
	suite.NoError(t, "parse hubs", err)
	if got := stageNames(f); !slices.Equal(got, []string{"clean.flights of flights", "clean.bookings of bookings", "figures of clean", "table of figures"}) {
		t.Errorf("stages %q", got)
	}
	if from := f.Stages[2].StampsFrom(); len(from) != 2 {
		t.Errorf("stamps are believed of %v", from)
	}
}

// TestDocumentsOfSeveralTopics: an id may have the topic.
func TestDocumentsOfSeveralTopics(t *testing.T) {
	t.Parallel()
	file := editTopic(t, "topic: flights", "topics: [a, b]", soundTopic[strings.Index(soundTopic, "target:"):], `target:
  cosmos: {endpoint: "https://contoso.documents.azure.com:443/", credential: default, database: d, container: c, id: 'concat(topic, "-", sequence)', partition_key: {topic: topic}}
`, "database: ${DATABASE_URL}", `leases: {sql: "${DATABASE_URL}"}`)
	f, err := ParseFile("p.yaml", []byte(file), kafkaEnvironment())
	suite.NoError(t, "parse", err)
	for i, want := range []string{"a-7 [a]", "b-7 [b]"} {
		docs, err := targetOf[*cosmosTarget](f.Stages[i]).documents(t.Context(), &sluice.Event{Sequence: 7, Body: []byte("{}")})
		if err != nil || fmt.Sprint(docs[0].ID, " ", docs[0].PartitionKey) != want {
			t.Errorf("documents %+v, want %s: %v", docs, want, err)
		}
	}
}

func TestSeveralTopicsErrors(t *testing.T) {
	t.Parallel()
	with := func(key string) string { return editTopic(t, "topic: flights", key) }
	for file, want := range map[string]string{
		with("topics: orders"):                                 "p.yaml:5:5: source.kafka.topics: a single value where a list should be",
		with("topics: []"):                                     "p.yaml:5:5: source.kafka.topics: is an empty list",
		with("topics: [a, b, a]"):                              "p.yaml:5:20: source.kafka.topics[2]: a is there twice",
		with("topics: [a, b/c]"):                               `p.yaml:5:17: source.kafka.topics[1]: "b/c": not a name of a topic`,
		with("topics: [a]\n    topic: b"):                      "p.yaml:3:3: source.kafka: needs one of topic, topics and topic_pattern",
		with("topic_pattern: 'a)|(?:b'"):                       `p.yaml:5:5: source.kafka.topic_pattern: "a)|(?:b": not a regular expression: `,
		with("topic_pattern: 'a('"):                            `p.yaml:5:5: source.kafka.topic_pattern: "a(": not a regular expression: `,
		editStages(t, "{hub: flights}", "{hub: a, hubs: [b]}"): "p.yaml:8:14: stages.clean.source.eventhub: needs one of hub and hubs",
		editStages(t, "{hub: clean}}\n    memory", "{hubs: [clean, x]}}\n    memory"): "stages.figures.source.eventhub.hubs: goes with no memory",
		editStages(t, "{hub: flights}", "{hubs: [a, A]}"):                             "p.yaml:7:3: stages.clean: reads hub A in the consumer group $Default as stage clean.a does",
	} {
		if _, err := ParseFile("p.yaml", []byte(file), kafkaEnvironment()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err := Parse("p.yaml", []byte(with("topics: [a, b]")), kafkaEnvironment())
	if err == nil || err.Error() != "p.yaml: has several stages, name one of them: flights.a, flights.b" {
		t.Error(err)
	}
	f, err := ParseFile("p.yaml", []byte(with("topics: [a, b]")), kafkaEnvironment())
	suite.NoError(t, "parse", err)
	_, err = f.Stages[1].Lineage()
	if err == nil || !strings.HasSuffix(err.Error(), `table "flights" has rows of several topics, and no column is mapped from topic: an audit needs one`) {
		t.Error(err)
	}
}

// TestTopicPattern: the topics of the cluster that match get a stage each, and none is an error.
func TestTopicPattern(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders.us", "orders.eu", "orders", "old-orders.eu", "__internal"))
	suite.NoError(t, "kfake", err)
	t.Cleanup(cluster.Close)
	parse := func(pattern string) *File {
		t.Helper()
		file := editTopic(t, "topic: flights", "topic_pattern: '"+pattern+"'")
		f, err := ParseFile("p.yaml", []byte(file), kafkaEnvironment("KAFKA_BROKERS="+strings.Join(cluster.ListenAddrs(), ",")))
		suite.NoError(t, "parse", err)
		return f
	}
	f := parse(`orders\..*`)
	_, err = f.Stages[0].Describe(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "p.yaml:3:3: source.kafka: topic_pattern: its topics are not known") {
		t.Error(err)
	}
	for range 2 { // once more changes nothing
		suite.NoError(t, "resolve", f.Resolve(t.Context()))
		if got := stageNames(f); !slices.Equal(got, []string{"flights.orders.eu of orders.eu", "flights.orders.us of orders.us"}) {
			t.Fatalf("stages %q", got)
		}
	}
	topic, err := f.Stages[1].Describe(t.Context())
	if err != nil || topic.Group.Topic != "orders.us" {
		t.Errorf("%+v, %v", topic, err)
	}
	err = parse("order").Resolve(t.Context())
	if err == nil || err.Error() != "p.yaml:5:5: source.kafka.topic_pattern: no topic matches order among the 5 that this user may Describe (__internal, old-orders.eu, orders, orders.eu, orders.us): correct the pattern, which must match the whole name, or create a topic" {
		t.Error(err)
	}
	f = parse("orders")
	cluster.Close()
	if err = f.Resolve(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "p.yaml:5:5: source.kafka.topic_pattern: list of topics: cannot connect: ") {
		t.Error(err)
	}
}
