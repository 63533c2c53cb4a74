package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/internal/datadir"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// KafkaConfig says which brokers [OpenKafka] uses.
type KafkaConfig struct {
	Brokers []string // that run; empty: one is started
	Home    string   // the directory of an unpacked release, of which one is started
	Topic   string   // created if it is missing
}

// OpenKafka is [flights.OpenDemo] with a topic of Kafka in place of the hub.
func OpenKafka(ctx context.Context, dir string, cfg *KafkaConfig) (_ *flights.Demo, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	k := &kafkaLog{topic: cfg.Topic, brokers: cfg.Brokers}
	if err := k.open(ctx, dir, cfg.Home); err != nil {
		return nil, errors.Join(err, k.close())
	}
	brokers := strings.Join(k.brokers, ",")
	s := &flights.Scenario{
		Dir: dir, Noun: "topic", Where: fmt.Sprintf("brokers   %s (topic %s)", brokers, k.topic), Dial: k.dial, CloseLog: k.close,
	}
	source := fmt.Sprintf("kafka:\n    brokers: %s\n    topic: %s\n    group: %s\n    checkpoint_namespace: %s",
		flights.Quote(brokers), flights.Quote(k.topic), kafkaGroup, kafkaGroup)
	return flights.NewDemo(ctx, s, source, func(group string) (flights.Source, error) {
		// With a namespace, dead letters are found without the brokers.
		return k.client.Source(k.topic, cmp.Or(group, kafkaGroup), &kafka.SourceConfig{Namespace: kafkaGroup})
	})
}

// kafkaGroup is the group of the demo's checkpoints, and their namespace.
const kafkaGroup = "sluice-demo"

// kafkaLog is a topic of Kafka, and perhaps the broker that has it.
type kafkaLog struct {
	topic   string
	brokers []string
	lock    *datadir.DirLock // on the demo's directory
	client  *kafka.Client
	broker  *broker // nil: the brokers are not the demo's
}

// open starts a broker unless there are brokers, and creates the topic if it is missing.
func (k *kafkaLog) open(ctx context.Context, dir, home string) (err error) {
	if k.lock, err = datadir.Lock(dir); err != nil {
		return err
	}
	if len(k.brokers) == 0 {
		if k.broker, err = startBroker(ctx, home, filepath.Join(dir, "kafka")); err != nil {
			return err
		}
		k.brokers = []string{k.broker.address}
	}
	return k.createTopic(ctx)
}

// createTopic creates the topic if it is missing, and checks that it is as the demo needs it.
func (k *kafkaLog) createTopic(ctx context.Context) (err error) {
	if k.client, err = kafka.Open(k.brokers, nil); err != nil {
		return err
	}
	admin := kadm.NewClient(k.client.Requests())
	forever := "-1" // a demo that is started again counts all events
	_, err = admin.CreateTopic(ctx, flights.Partitions, -1, map[string]*string{"retention.ms": &forever}, k.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return k.client.Explain("create topic "+k.topic, err)
	}
	source, err := k.client.Source(k.topic, kafkaGroup, nil)
	if err != nil {
		return err
	}
	defer source.Close(ctx)
	topic, err := source.Describe(ctx)
	if err == nil && len(topic.Partitions) != flights.Partitions {
		err = fmt.Errorf("topic %s has %d partitions, and the demo needs %d: name another topic with --topic, which is created", k.topic, len(topic.Partitions), flights.Partitions)
	}
	return err
}

func (k *kafkaLog) close() error {
	var errs []error
	if k.client != nil {
		errs = append(errs, k.client.Close(context.Background()))
	}
	if k.broker != nil {
		k.broker.stop()
	}
	if k.lock != nil {
		errs = append(errs, k.lock.Unlock())
	}
	return errors.Join(errs...)
}

// dial opens a connection that sends to the topic.
func (k *kafkaLog) dial() (flights.Connection, error) {
	t, err := kafkasender.New(k.client, k.topic, nil)
	if err != nil {
		return nil, err
	}
	return topicConnection{t}, nil
}

type topicConnection struct{ topic *kafkasender.Transport }

// Send implements [flights.Connection].
func (c topicConnection) Send(ctx context.Context, partition int, records []flights.Record) error {
	batch, err := c.topic.NewBatch(ctx, strconv.Itoa(partition))
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := batch.Add(&sender.Message{Key: r.Key, Body: r.Body, ContentType: "application/json"}); err != nil {
			return err
		}
	}
	outcome, err := c.topic.Send(ctx, batch)
	if err == nil && outcome != sender.OutcomeAccepted {
		err = errors.New("the brokers did not accept a batch")
	}
	return err
}

// Close implements [flights.Connection]. The client stays open.
func (topicConnection) Close(context.Context) {}
