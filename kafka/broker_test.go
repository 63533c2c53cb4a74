package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topicName = "flights"

// cluster is a Kafka of a test, with one topic.
type cluster struct {
	brokers []string
	topic   string
	client  *kgo.Client
	admin   *kadm.Client
}

// newFake starts franz-go's fake of Kafka with a topic of two partitions.
func newFake(t testing.TB, options ...kfake.Opt) (*cluster, *kfake.Cluster) {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, topicName)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return newCluster(t, fake.ListenAddrs(), topicName), fake
}

func newCluster(t testing.TB, brokers []string, topic string) *cluster {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &cluster{brokers, topic, client, kadm.NewClient(client)}
}

// open opens a client, which is closed at the end of the test.
func (c *cluster) open(t testing.TB, cfg *Config) *Client {
	t.Helper()
	client, err := Open(c.brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

// source opens a client with a source of the topic.
func (c *cluster) source(t testing.TB, cfg *SourceConfig) *Source {
	t.Helper()
	s, err := c.open(t, nil).Source(c.topic, "test", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// append sends events to a partition, as the sink for Kafka does.
func (c *cluster) append(ctx context.Context, partition string, events ...*driver.Event) error {
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return err
	}
	// A client of its own, which does not know the topic of before.
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1),
		kgo.ProduceRequestTimeout(3*time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, e := range events {
		r := &kgo.Record{Topic: c.topic, Partition: int32(n), Value: e.Body, Headers: headersOf(e), Timestamp: e.Created}
		if e.Key != "" || e.EmptyKey {
			r.Key = []byte(e.Key)
		}
		records = append(records, r)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// gap has a partition take the numbers of a transaction that is aborted.
func (c *cluster) gap(ctx context.Context, partition string) error {
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("gap "+rand.Text()))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	record := &kgo.Record{Topic: c.topic, Partition: int32(n), Value: []byte("aborted")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryAbort)
}

// headersOf returns the headers of an event that is sent.
func headersOf(e *driver.Event) (headers []kgo.RecordHeader) {
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	add(HeaderMessageID, e.MessageID)
	add(HeaderCorrelationID, e.CorrelationID)
	add(HeaderContentType, e.ContentType)
	for name, value := range e.Properties {
		switch v := value.(type) {
		case float64:
			add(name, strconv.FormatFloat(v, 'g', -1, 64))
		default:
			add(name, fmt.Sprint(v))
		}
	}
	for _, h := range e.Headers {
		headers = append(headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	return headers
}

func (c *cluster) trim(ctx context.Context, partition string, before int64) error {
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: c.topic, Partition: int32(n), At: before})
	for { // a leader waits for its followers, which on a busy machine are late
		answers, err := c.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return err
		}
		if err := answers.Error(); !errors.Is(err, kerr.RequestTimedOut) || ctx.Err() != nil {
			return err
		}
	}
}

// recreate deletes the topic and creates another of its name. It returns once all brokers know
// that, because franz-go's client keeps the first id that a broker names, and the leaders take
// requests.
func (c *cluster) recreate(ctx context.Context) error {
	before, err := c.admin.ListTopics(ctx, c.topic)
	if err != nil {
		return err
	}
	if _, err := c.admin.DeleteTopic(ctx, c.topic); err != nil {
		return err
	}
	for {
		_, err := c.admin.CreateTopic(ctx, 2, -1, nil, c.topic)
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.TopicAlreadyExists) || ctx.Err() != nil {
			return err
		}
	}
	for _, b := range c.client.DiscoveredBrokers() {
		err := c.await(ctx, "each broker knows that the topic was created again", func() (bool, error) {
			id, err := c.topicID(ctx, b)
			return id != before[c.topic].ID, err
		})
		if err != nil {
			return err
		}
	}
	return c.await(ctx, "the leaders have the new partitions", func() (bool, error) {
		ends, err := c.admin.ListEndOffsets(ctx, c.topic)
		empty := 0
		ends.Each(func(end kadm.ListedOffset) {
			if end.Err == nil && end.Offset == 0 {
				empty++
			}
		})
		return empty == 2, err
	})
}

// await waits for a condition of the topic.
func (c *cluster) await(ctx context.Context, what string, ok func() (bool, error)) error {
	for {
		is, err := ok()
		if err == nil && is {
			return nil
		}
		if clock.Sleep(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("topic %s: wait until %s: %w", c.topic, what, errors.Join(ctx.Err(), err))
		}
	}
}

// topicID asks a broker for the topic's id.
func (c *cluster) topicID(ctx context.Context, b *kgo.Broker) (id kadm.TopicID, err error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.topic
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, b)
	if err != nil {
		return id, err
	}
	return resp.Topics[0].TopicID, kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}
