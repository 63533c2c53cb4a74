package main_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fakeKafka starts a cluster of Kafka in this process.
func fakeKafka(t testing.TB, options ...kfake.Opt) []string {
	t.Helper()
	c, err := kfake.NewCluster(append(options, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

func TestFromKafka(t *testing.T) {
	t.Parallel()
	runFromKafka(t, fakeKafka(t), databases["sqlite"](t))
}

func TestMoveFromAGroupOfKafka(t *testing.T) {
	t.Parallel()
	moveFromGroup(t, fakeKafka(t), databases["sqlite"](t))
}

func TestImportOutsideTheLogOfKafka(t *testing.T) {
	t.Parallel()
	importOutsideTheLog(t, fakeKafka(t), databases["sqlite"](t))
}

func TestWhatIsWrongWithKafkaIsOneClearLine(t *testing.T) {
	t.Parallel()
	open := strings.Join(fakeKafka(t, kfake.SeedTopics(1, "flights")), ",")
	const closed = "127.0.0.1:1" // nobody listens there
	database := existingSQLite(t)
	environment := func(brokers string, more ...string) []string {
		return append([]string{"KAFKA_BROKERS=" + brokers, "DATABASE_URL=" + database}, more...)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want []string // parts of the line
	}{
		{"unknown key", environment(open), []string{"run", kafkaExample(t, "    topic:", "    tpoic:")}, []string{"kafka.yaml:", "source.kafka.tpoic: unknown key, did you mean topic?"}},
		{"a key of hubs", environment(open), []string{"run", kafkaExample(t, "    group:", "    consumer_group:")}, []string{"kafka.yaml:", "source.kafka.consumer_group: unknown key"}},
		{"variable not set", []string{"DATABASE_URL=" + database}, []string{"run", kafkaExample(t)}, []string{"source.kafka.brokers: the environment variable KAFKA_BROKERS is not set"}},
		{"not a broker", environment("app:" + secret + "@host:9092"), []string{"run", kafkaExample(t)}, []string{"source.kafka.brokers: broker 1: not a host"}},
		{"unknown topic", environment(open, "KAFKA_TOPIC=flihgts"), []string{"run", kafkaExample(t)}, []string{"source.kafka: topic flihgts: no such topic: check the name, or create it"}},
		{"unknown topic, listed", environment(open, "KAFKA_TOPIC=flihgts"), []string{"checkpoints", "list", "--config", kafkaExample(t)}, []string{"source.kafka: topic flihgts: no such topic"}},
		{"no broker there", environment(closed), []string{"run", kafkaExample(t)}, []string{"source.kafka: topic flights", closed, "connection refused: check the addresses of the brokers"}},
		{"no broker there, imported from", environment(closed), []string{"checkpoints", "import", "--from-group", "g", "--config", kafkaExample(t)}, []string{"source.kafka: topic flights", closed, "check the addresses of the brokers"}},
		{"unknown topic, imported from", environment(open, "KAFKA_TOPIC=flihgts"), []string{"checkpoints", "import", "--from-group", "g", "--config", kafkaExample(t)}, []string{"source.kafka: topic flihgts: no such topic"}},
		{"unknown partition", environment(open), []string{"checkpoints", "set", "--config", kafkaExample(t), "--partition", "7", "--to", "latest"}, []string{"flights has no partition 7: its partitions are 0"}},
		{"a group that does not exist", environment(open), []string{"checkpoints", "import", "--from-group", "g", "--config", kafkaExample(t)}, []string{"consumer group g has no offsets of topic flights: check both names"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			isOneClearLine(t, c.env, c.args, c.want...)
		})
	}
}

func TestCheckKafkaMistakes(t *testing.T) {
	t.Parallel()
	env := []string{"KAFKA_BROKERS=" + strings.Join(fakeKafka(t, kfake.SeedTopics(1, "flights")), ","), "DATABASE_URL=sqlite:flights.db", "KAFKA_TOPIC=flihgts"}
	failsCheck(t, env, kafkaExample(t), "source.kafka: topic flihgts: no such topic")
}

func TestDemoKafkaMisused(t *testing.T) {
	t.Parallel()
	three := strings.Join(fakeKafka(t, kfake.SeedTopics(3, "sluice-demo")), ",")
	for name, c := range map[string]struct {
		env, args []string
		code      int
		want      string
	}{
		"nothing given":    {nil, nil, 2, "no Kafka to use: pass --brokers HOST:9092 of brokers that run, or --kafka-home DIR"},
		"not a broker":     {nil, []string{"--brokers", "a:b:c"}, 2, "--brokers: broker 1: not HOST or HOST:PORT"},
		"nobody there":     {[]string{"KAFKA_BROKERS=127.0.0.1:1"}, nil, 1, "create topic sluice-demo: cannot connect: dial tcp 127.0.0.1:1: connect: connection refused: check the addresses"},
		"no release there": {[]string{"KAFKA_HOME=/nowhere"}, nil, 1, "--kafka-home /nowhere: no libs/kafka_*.jar in it"},
		"another topic":    {nil, []string{"--brokers", three}, 1, "topic sluice-demo has 3 partitions, and the demo needs 4: name another topic with --topic"},
	} {
		code, out, errs := invoke(t, "", append([]string{"KAFKA_BROKERS=", "KAFKA_HOME="}, c.env...), append([]string{"demo", "kafka", "--once", "--data", t.TempDir()}, c.args...)...)
		if code != c.code || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
	}
}

// TestDemoKafka: the demo is killed again and again, and goes on where it stopped.
func TestDemoKafka(t *testing.T) {
	t.Parallel()
	demoKafka(t, 3, "--brokers", strings.Join(fakeKafka(t), ","))
}

// demoKafka runs the demo over brokers, or a release, and kills it some times.
func demoKafka(t *testing.T, kills int, args ...string) {
	dir := t.TempDir()
	args = append([]string{"demo", "kafka", "--data", dir}, args...)
	for range kills {
		p := start(t, "", nil, args...)
		db := openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db"))
		before := int64(0)
		await(t, "some rows", func() bool {
			if _, err := os.Stat(filepath.Join(dir, "flights.db")); err != nil {
				return false
			}
			n := count(t, db, countRows)
			before = cmp.Or(before, n)
			return n > before
		})
		p.kill()
	}
	out := must(t, "", nil, append(args, "--once", "--events", "30000")...)
	if !strings.Contains(out, "events in the topic") || !strings.Contains(out, ", each exactly once: checked by partition and sequence number.") {
		t.Errorf("it says\n%s", out)
	}
	if db := openDatabase(t, "sqlite:"+filepath.Join(dir, "flights.db")); count(t, db, countRows) < 29_900 {
		t.Errorf("%d rows", count(t, db, countRows))
	}
	// The broker of a release has ended.
	if out := must(t, "", nil, "deadletters", "retry", "--config", filepath.Join(dir, "fixed.yaml"), "--all"); !strings.Contains(out, " applied, 0 failed again") {
		t.Errorf("the retry says %s", out)
	}
}

// isOneClearLine expects that a command fails with one line that has some parts and no secret.
func isOneClearLine(t *testing.T, env, args []string, want ...string) {
	t.Helper()
	code, out, errs := invoke(t, "", env, args...)
	if code != 1 || out != "" {
		t.Errorf("exit code %d, printed %q", code, out)
	}
	if !strings.HasPrefix(errs, "sluice: ") || strings.Count(errs, "\n") != 1 {
		t.Errorf("not one line: %s", errs)
	}
	for _, part := range want {
		if !strings.Contains(errs, part) {
			t.Errorf("no %q in %s", part, errs)
		}
	}
	if strings.Contains(errs, secret) {
		t.Errorf("the secret is in %s", errs)
	}
}

// failsCheck checks that one finding of check --connect has all parts, and that none shows the
// secret.
func failsCheck(t *testing.T, env []string, config string, want ...string) {
	t.Helper()
	code, out, errs := invoke(t, "", env, "check", "--connect", config)
	if code != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "failed checks: ") || strings.Contains(out+errs, secret) {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "failed ") && !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
	t.Errorf("no finding with %q in %s", want, out)
}
