package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

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

// OpenKafka is Open with a topic of Kafka in place of the hub.
func OpenKafka(ctx context.Context, dir string, cfg *KafkaConfig) (_ *Demo, err error) {
	all, err := unpackFlights()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("demo's directory: %w", err)
	}
	k := &kafkaLog{topic: cfg.Topic, brokers: cfg.Brokers}
	d := &Demo{scenario: &scenario{dir: dir, name: cfg.Topic, dial: k.dial, closeLog: k.close}, flights: all}
	d.record = d.flightRecord
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close(context.WithoutCancel(ctx)))
		}
	}()
	if k.lock, err = datadir.Lock(dir); err != nil {
		return nil, err
	}
	if len(k.brokers) == 0 {
		if k.broker, err = startBroker(ctx, cfg.Home, filepath.Join(dir, "kafka")); err != nil {
			return nil, err
		}
		k.brokers = []string{k.broker.address}
	}
	if err := k.createTopic(ctx); err != nil {
		return nil, err
	}
	d.where = fmt.Sprintf("brokers   %s (topic %s)", strings.Join(k.brokers, ","), k.topic)
	// With a namespace, dead letters are found without the brokers.
	return d, d.begin(ctx, fmt.Sprintf("kafka:\n    brokers: %s\n    topic: %s\n    group: sluice-demo\n    checkpoint_namespace: sluice-demo", quote(strings.Join(k.brokers, ",")), quote(k.topic)))
}

// kafkaLog is a topic of Kafka, and perhaps the broker that has it.
type kafkaLog struct {
	topic   string
	brokers []string
	lock    *datadir.DirLock // on the demo's directory
	client  *kafka.Client
	broker  *broker // nil: the brokers are not the demo's
}

// createTopic creates the topic if it is missing, and checks that it is as the demo needs it.
func (k *kafkaLog) createTopic(ctx context.Context) (err error) {
	if k.client, err = kafka.Open(k.brokers, nil); err != nil {
		return err
	}
	admin := kadm.NewClient(k.client.Requests())
	forever := "-1" // a demo that is started again counts all events
	_, err = admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &forever}, k.topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return k.client.Explain("create topic "+k.topic, err)
	}
	source, err := k.client.Source(k.topic, "sluice-demo", nil)
	if err != nil {
		return err
	}
	defer source.Close(ctx)
	topic, err := source.Describe(ctx)
	if err == nil && len(topic.Partitions) != partitions {
		err = fmt.Errorf("topic %s has %d partitions, and the demo needs %d: name another topic with --topic, which is created", k.topic, len(topic.Partitions), partitions)
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
func (k *kafkaLog) dial() (connection, error) {
	t, err := kafkasender.New(k.client, k.topic, nil)
	if err != nil {
		return nil, err
	}
	return topicConnection{t}, nil
}

type topicConnection struct{ topic *kafkasender.Transport }

// send implements [connection].
func (c topicConnection) send(ctx context.Context, partition int, records []record) error {
	batch, err := c.topic.NewBatch(ctx, strconv.Itoa(partition))
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := batch.Add(&sender.Message{Key: r.key, Body: r.body, ContentType: "application/json"}); err != nil {
			return err
		}
	}
	outcome, err := c.topic.Send(ctx, batch)
	if err == nil && outcome != sender.OutcomeAccepted {
		err = errors.New("the brokers did not accept a batch")
	}
	return err
}

// close implements [connection]. The client stays open.
func (topicConnection) close(context.Context) {}
