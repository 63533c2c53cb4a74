package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/kafka"
)

// lagMetric opens a file with one metric, the lag of other consumers, and returns a function that
// reads it.
func lagMetric(t *testing.T, keys string, env map[string]string) func() autoscale.Point {
	t.Helper()
	c, err := config.Parse("orders.yaml", []byte(lagOf(keys)), func(name string) (string, bool) { value, set := env[name]; return value, set })
	if err != nil {
		t.Fatal(err)
	}
	collector, done, err := c.OpenSources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := done(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return func() autoscale.Point { return collector.Read(t.Context())[0] }
}

func expectLag(t *testing.T, what string, p autoscale.Point, want float64) {
	t.Helper()
	if p.Value != want || p.State != autoscale.Active {
		t.Errorf("%s: %+v, want %v", what, p, want)
	}
}

func expectCause(t *testing.T, what string, p autoscale.Point, want string) {
	t.Helper()
	if p.State != autoscale.Failed || p.Value != 0 || !strings.Contains(p.Cause, want) {
		t.Errorf("%s: %+v, want %s", what, p, want)
	}
}

// TestKafkaGroup: the lag of a consumer group of Kafka is what it has not committed, and unknown
// before it has committed anything.
func TestKafkaGroup(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "flights"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	groupLag(t, fake.ListenAddrs(), "flights")
}

func TestKafkaGroupOfABroker(t *testing.T) {
	groupLag(t, kafkatest.Shared(t).Brokers(), kafkatest.Topic(t, 2))
}

func groupLag(t *testing.T, brokers []string, topic string) {
	t.Helper()
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for partition, n := range map[int32]int{0: 30, 1: 12} {
		for i := range n {
			if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	client, err := kafka.Open(brokers, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := client.Source(topic, "billing", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(source.Close(context.Background()), client.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()
	commit := func(partition string, done int64) {
		t.Helper()
		if err := source.CommitOffsets(t.Context(), "billing", map[string]driver.Position{partition: {Sequence: done}}); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"KAFKA_BROKERS": strings.Join(brokers, ","), "TOPIC": topic}
	const keys = "source: {kafka: {brokers: '${KAFKA_BROKERS}', topic: '${TOPIC}'}%s}, checkpoints: {kafka_group: billing}"
	read := lagMetric(t, fmt.Sprintf(keys, ""), env)
	latest := lagMetric(t, fmt.Sprintf(keys, ", start: latest"), env)
	expectCause(t, "a group without offsets", read(), "consumer group billing has no offsets of topic "+topic)
	commit("0", 9)
	expectLag(t, "10 of 30 done, nothing of 12", read(), 32)
	expectLag(t, "10 of 30 done, the other from its end on", latest(), 20)
	commit("0", 29)
	commit("1", 10)
	expectLag(t, "one left", read(), 1)
	commit("1", 11)
	expectLag(t, "all done", read(), 0)
}
