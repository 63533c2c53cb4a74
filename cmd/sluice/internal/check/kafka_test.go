package check

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pipeline"
)

// fakeTopic is a topic in a cluster in this process.
type fakeTopic struct {
	brokers []string
	client  *kgo.Client
	admin   *kadm.Client
}

func startKafka(t *testing.T, options ...kfake.Opt) *fakeTopic {
	t.Helper()
	c, err := kfake.NewCluster(append(options, kfake.NumBrokers(3))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("t"), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &fakeTopic{c.ListenAddrs(), client, kadm.NewClient(client)}
}

// create creates a topic with events. Every check accepts it, except for what settings change.
func (f *fakeTopic) create(t *testing.T, name string, replicas int16, settings map[string]*string) {
	t.Helper()
	all := map[string]*string{"min.insync.replicas": kadm.StringPtr("2"), "unclean.leader.election.enable": kadm.StringPtr("false")}
	for key, value := range settings {
		all[key] = value
	}
	if _, err := f.admin.CreateTopic(t.Context(), 2, replicas, all, name); err != nil {
		t.Fatal(err)
	}
	f.transact(t, name, true)
}

// transact sends events in a transaction, and ends it if so.
func (f *fakeTopic) transact(t *testing.T, name string, end bool) {
	t.Helper()
	if err := f.client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r := &kgo.Record{Topic: name, Partition: int32(i % 2), Value: fmt.Append(nil, i)}
		if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if end {
		if err := f.client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
}

// open makes the system of a pipeline's topic.
func (f *fakeTopic) open(t *testing.T, name, more string, opts Options) *topic {
	t.Helper()
	opts.ID = "test"
	file := fmt.Sprintf("source:\n  kafka:\n    brokers: '%s'\n    topic: %s\n%spartitions: all\ndatabase: sqlite:x.db\ntarget: {statement: {sql: SELECT 1}}\n", strings.Join(f.brokers, ","), name, more)
	p, err := pipeline.Parse("p.yaml", []byte(file), func(string) (string, bool) { return "topsecret", true })
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenKafka(p.Connections().Kafka, opts)
	if err != nil {
		t.Fatal(err)
	}
	k := s.(*topic)
	k.heldFor, k.requests = time.Second, 3
	t.Cleanup(func() { k.Close(context.Background()) })
	return k
}

func TestKafkaHolds(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	f := startKafka(t)
	f.create(t, "flights", 3, nil)
	k := f.open(t, "flights", "    progress_group: g\n", Options{Send: 250})
	allHold(t, k, map[string]State{"kafka.password": Skipped})
	if creates := fmt.Sprint(k.Creates()); !strings.Contains(creates, "250 events in partition 0") {
		t.Error(creates)
	}
	allHold(t, f.open(t, "flights", "", Options{}), map[string]State{"kafka.password": Skipped, "kafka.send": Skipped, "kafka.progress": Skipped})
}

// TestKafkaDiffers: what is set up in another way is reported, and what to do.
func TestKafkaDiffers(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	f := startKafka(t)
	f.create(t, "unclean", 3, map[string]*string{"unclean.leader.election.enable": kadm.StringPtr("true")})
	f.create(t, "compacted", 3, map[string]*string{"cleanup.policy": kadm.StringPtr("compact,delete")})
	f.create(t, "single", 1, nil)
	f.create(t, "asynchronous", 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")})
	f.create(t, "open", 3, nil)
	f.transact(t, "open", false)
	if _, err := f.admin.CreateTopic(t.Context(), 1, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}, "empty"); err != nil {
		t.Fatal(err)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("single"), kgo.ClientID("old-app"))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	if err := member.PollFetches(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	skipped := map[string]State{"kafka.send": Skipped, "kafka.progress": Skipped, "kafka.password": Skipped}
	for _, c := range []struct {
		topic, more string
		check       string
		verdict     State
		next        string
	}{
		{"unclean", "", "kafka.unclean", Warning, "set unclean.leader.election.enable=false"},
		{"compacted", "", "kafka.cleanup", Warning, "set cleanup.policy=delete"},
		{"single", "", "kafka.replicas", Warning, "replication factor of 3"},
		{"asynchronous", "", "kafka.replicas", Warning, "set min.insync.replicas=2"},
		{"open", "", "kafka.transactions", Warning, "kafka-transactions.sh find-hanging"},
		{"unclean", "    progress_group: g\n", "kafka.progress", Failed, "stop them, or name another progress_group"},
	} {
		report, err := (&Runner{Systems: []System{f.open(t, c.topic, c.more, Options{})}}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range tested(report) {
			want, next := OK, ""
			switch v, ok := skipped[got.Check]; {
			case got.Check == c.check:
				want, next = c.verdict, c.next
			case got.Check == "kafka.unclean" && c.topic == "unclean":
				want = Warning
			case ok:
				want = v
			}
			if got.State != want || !strings.Contains(got.Next, next) {
				t.Errorf("topic %s: %s is %s, want %s: %s: %s", c.topic, got.Check, got.State, want, got.Found, got.Next)
			}
		}
	}
	for _, got := range runChecks(t, f.open(t, "empty", "", Options{})) {
		if events := got.Check == "kafka.numbers" || got.Check == "kafka.next" || got.Check == "kafka.end" || got.Check == "kafka.epoch"; events && got.State != Undecided {
			t.Errorf("an empty topic: %s is %s: %s", got.Check, got.State, got.Found)
		}
	}
}

func runChecks(t *testing.T, s System) List {
	t.Helper()
	report, err := (&Runner{Systems: []System{s}}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tested(report)
}

func TestKafkaRights(t *testing.T) {
	t.Parallel()
	f := startKafka(t)
	f.create(t, "flights", 3, nil)
	for more, want := range map[string]string{
		"flihgts": "describe the topic: topic flihgts: no such topic",
		"flights": "",
	} {
		var missing []string
		for _, r := range f.open(t, more, "    progress_group: g\n", Options{}).Rights(t.Context()) {
			if !r.Granted {
				missing = append(missing, r.Name+": "+r.Found)
			}
		}
		if got := fmt.Sprint(missing); want == "" && len(missing) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: missing %s, want %q", more, got, want)
		}
	}
}

// TestKafkaPassword: a password over a connection without TLS is reported, and in no report.
func TestKafkaPassword(t *testing.T) {
	t.Parallel()
	f := startKafka(t)
	sasl := "    sasl:\n      plain:\n        user: me\n        password: ${KAFKA_PASSWORD}\n"
	for more, want := range map[string]State{sasl: Warning, sasl + "    tls: true\n": OK, "": Skipped} {
		if o := f.open(t, "flights", more, Options{}).checkPassword(t.Context()); o.State != want {
			t.Errorf("%s: %s", more, o.State)
		}
	}
	file := fmt.Sprintf("source:\n  kafka:\n    brokers: broker.example.com:9092\n    topic: flights\n%spartitions: all\ndatabase: sqlite:x.db\ntarget: {statement: {sql: SELECT 1}}\n", sasl)
	p, err := pipeline.Parse("p.yaml", []byte(file), func(string) (string, bool) { return "topsecret", true })
	if err != nil {
		t.Fatal(err)
	}
	targets := NewTargets(Options{}, nil)
	defer targets.Close()
	if err := targets.AddPipeline(p.Connections(), "g"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(targets.Secrets, targets.Names); !strings.Contains(got, "topsecret") || !strings.Contains(got, "broker.example.com") || !strings.Contains(got, "me") {
		t.Errorf("the report may have what is not among %s", got)
	}
}
