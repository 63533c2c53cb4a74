package wire

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-go/sluice/kafka"
)

type kafkaBroker struct {
	fake      *kfake.Cluster
	producer  *kgo.Client
	addresses []string
}

func (b *kafkaBroker) protocol() protocol { return &kafkaProtocol{asked: map[int32]request{}} }

type kafkaSource struct {
	*kafka.Source
	client *kafka.Client
}

func (s kafkaSource) Close(ctx context.Context) error {
	return errors.Join(s.Source.Close(ctx), s.client.Close(ctx))
}

func (b *kafkaBroker) open(n *network, prefetchBytes int) (source, error) {
	c, err := kafka.Open(b.addresses, &kafka.Config{Dial: func(ctx context.Context, _, at string) (net.Conn, error) { return n.dial(ctx, at) }})
	if err != nil {
		return nil, err
	}
	s, err := c.Source("topic", "group", &kafka.SourceConfig{PrefetchBytes: prefetchBytes})
	return kafkaSource{s, c}, err
}

func (b *kafkaBroker) send(ctx context.Context, partition int, body string) error {
	return b.producer.ProduceSync(ctx, &kgo.Record{Topic: "topic", Partition: int32(partition), Value: []byte(body)}).FirstErr()
}

func (b *kafkaBroker) close() {
	b.producer.Close()
	b.fake.Close()
}

func startKafka(t *testing.T, n *network) broker {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "topic"), kfake.ListenFn(n.listen))
	if err != nil {
		t.Fatal(err)
	}
	b := &kafkaBroker{fake: fake, addresses: fake.ListenAddrs()}
	b.producer, err = kgo.NewClient(kgo.SeedBrokers(b.addresses...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.Dialer(func(ctx context.Context, _, at string) (net.Conn, error) { return n.connect(ctx, at, nil) }))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKafka is TestEventHubs of the driver of Kafka.
func TestKafka(t *testing.T) {
	runWorlds(t, 12, startKafka, "cut", "stall", "late", "replay", "forge")
}
