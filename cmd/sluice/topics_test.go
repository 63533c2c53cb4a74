package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const ofSeveralTopics = `source:
  kafka:
    brokers: ${KAFKA_BROKERS}
    topics: [%[1]seu, %[1]sus]
partitions: all
database: ${DATABASE_URL}
target:
  insert:
    table: orders
    create: true
    columns:
      topic: topic
      p: partition
      n: sequence
      amount: {from: body.amount, type: integer}
`

// TestSeveralTopics: a file reads two topics, named or matched, and each command has them as
// stages.
func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	severalTopics(t, "orders.", fakeKafka(t, kfake.SeedTopics(2, "orders.eu", "orders.us", "others")))
}

func severalTopics(t *testing.T, prefix string, brokers []string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for topic, bodies := range map[string][]string{"eu": {`{"amount": 1}`, `{"amount": 2}`, `{}`}, "us": {`{"amount": 10}`, `{"amount": 20}`}} {
		for i, body := range bodies {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: prefix + topic, Partition: int32(i % 2), Value: []byte(body)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, text := range map[string]string{
		"named":   fmt.Sprintf(ofSeveralTopics, prefix),
		"matched": strings.Replace(fmt.Sprintf(ofSeveralTopics, prefix), "topics: ["+prefix+"eu, "+prefix+"us]", "topic_pattern: '"+strings.ReplaceAll(prefix, ".", `\.`)+"(eu|us)'", 1),
	} {
		dir := t.TempDir()
		config, url := filepath.Join(dir, "load.yaml"), "sqlite:"+filepath.Join(dir, "orders.db")
		env := []string{"KAFKA_BROKERS=" + strings.Join(brokers, ","), "DATABASE_URL=" + url}
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, "", env, "run", config, "--until-caught-up")
		db := openDatabase(t, url)
		for query, want := range map[string]int64{
			"SELECT SUM(amount) FROM orders WHERE topic = '" + prefix + "eu'": 3,
			"SELECT SUM(amount) FROM orders WHERE topic = '" + prefix + "us'": 30,
			"SELECT COUNT(*) FROM orders":                                     4,
		} {
			if got := count(t, db, query); got != want {
				t.Errorf("%s: %s: %d, want %d", name, query, got, want)
			}
		}
		eu, us := []string{"--config", config, "--stage", "load." + prefix + "eu"}, []string{"--config", config, "--stage", "load." + prefix + "us"}
		type command struct {
			args []string
			code int
			want string
		}
		commands := []command{
			{append([]string{"audit", "hub"}, eu...), 0, "Nothing lost, nothing duplicated: 3 events, 2 written, 1 dead letter, 0 waiting."},
			{append([]string{"audit", "hub"}, us...), 0, "Nothing lost, nothing duplicated: 2 events, 2 written, 0 dead letters, 0 waiting."},
			{[]string{"peek", config, "load." + prefix + "us", "--limit", "1"}, 0, `"amount"`},
		}
		more := []command{
			{[]string{"check", config, "--connect"}, 0, "valid: topic " + prefix + "us, consumer group sluice"},
			{append([]string{"checkpoints", "list"}, us...), 0, "0         0    0 "},
			{[]string{"checkpoints", "list", "--config", config}, 2, "has several stages, name one of them: load." + prefix + "eu, load." + prefix + "us"},
			{append([]string{"deadletters", "list"}, eu...), 0, "body.amount: is missing"},
			{append([]string{"deadletters", "list"}, us...), 0, "no dead letters"},
			{append([]string{"deadletters", "retry", "--all"}, eu...), 1, "1 dead letter failed again"},
			{[]string{"try", config, "--stage", "load." + prefix + "us"}, 0, prefix + "us"},
		}
		if name == "named" {
			commands = append(commands, more...)
		}
		for _, c := range commands {
			if code, out, errs := invoke(t, "", env, c.args...); code != c.code || !strings.Contains(out+errs, c.want) {
				t.Errorf("%s: %q: exit code %d, want %d and %q in\n%s%s", name, c.args, code, c.code, c.want, out, errs)
			}
		}
	}
}
