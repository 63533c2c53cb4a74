package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// use returns the cluster's client, which all sources and targets that name the cluster in the file
// share. Each caller calls done once; the last one closes the client.
func (c *kafkaCluster) use() (client *kafka.Client, done func(context.Context) error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		if c.client, err = c.connect(); err != nil {
			return nil, nil, err
		}
	}
	c.users++
	return c.client, c.done, nil
}

func (c *kafkaCluster) done(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users > 0 {
		return nil
	}
	client := c.client
	c.client = nil
	return client.Close(ctx)
}

// connect returns a client, which connects when it is first used.
func (c *kafkaCluster) connect() (*kafka.Client, error) {
	cfg := c.config
	cfg.TLS = c.tls
	switch s := c.sasl; {
	case s == nil:
	case s.plain != nil:
		cfg.Authentication = kafka.Plain(s.plain.user, s.plain.password)
	case s.scram != nil && s.hash == sha256:
		cfg.Authentication = kafka.SCRAM256(s.scram.user, s.scram.password)
	case s.scram != nil:
		cfg.Authentication = kafka.SCRAM512(s.scram.user, s.scram.password)
	case s.entra:
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		cfg.Authentication = kafka.EntraID(credential)
	default:
		cfg.Authentication = kafka.OAuthBearer(s.token)
	}
	return kafka.Open(c.brokers, &cfg)
}

// topicSource is a source over the cluster's client.
type topicSource struct {
	*kafka.Source
	done func(context.Context) error // with the client
}

// Close closes the source, and the client unless others use it. It is called once.
func (s *topicSource) Close(ctx context.Context) error {
	return errors.Join(s.Source.Close(ctx), s.done(ctx))
}

// open implements [log].
func (t *kafkaTopic) open(consumerGroup string) (Source, error) {
	if t.pattern != nil {
		return nil, errUnresolved
	}
	client, done, err := t.cluster.use()
	if err != nil {
		return nil, err
	}
	if consumerGroup == "" {
		consumerGroup = t.consumerGroup
	}
	source, err := client.Source(t.name, consumerGroup, &kafka.SourceConfig{Namespace: t.namespace, ReadUncommitted: t.readUncommitted, PrefetchBytes: t.prefetchBytes, MaxBatchBytes: t.maxRecordBatch, Headers: t.headers})
	if err != nil {
		return nil, errors.Join(err, done(context.Background()))
	}
	return &topicSource{source, done}, nil
}

// setConnections implements [log].
func (t *kafkaTopic) setConnections(c *Connections) {
	k := &KafkaConnection{Brokers: t.cluster.brokers, Topic: t.name, ReadUncommitted: t.readUncommitted, ProgressGroup: t.progressGroup, Encrypted: t.cluster.tls != nil, open: t.cluster.connect}
	if s := t.cluster.sasl; s != nil {
		k.PlainPassword = s.plain != nil
		for _, u := range []*userPassword{s.plain, s.scram} {
			if u != nil {
				k.User, k.Secrets = u.user, []string{u.password}
			}
		}
		if s.clientSecret != "" {
			k.Secrets = append(k.Secrets, s.clientSecret)
		}
	}
	c.Kafka = k
}

// topicTarget is a topic that messages are sent to.
type topicTarget struct {
	cluster *kafkaCluster
	name    string
}

func (t *topicTarget) address() address { return address{Kafka, t.cluster.brokers, t.name} }

// topicTransport is a sender over the cluster's client.
type topicTransport struct {
	*kafkasender.Transport
	done func(context.Context) error // with the client
}

// Close closes the client unless others use it. It is called once.
func (t *topicTransport) Close(ctx context.Context) error { return t.done(ctx) }

// transport implements [destination].
func (t *topicTarget) transport() (transport, error) { return t.open() }

func (t *topicTarget) open() (*topicTransport, error) {
	client, done, err := t.cluster.use()
	if err != nil {
		return nil, err
	}
	out, err := kafkasender.New(client, t.name, nil)
	if err != nil {
		return nil, errors.Join(err, done(context.Background()))
	}
	return &topicTransport{out, done}, nil
}

// check implements [destination].
func (t *topicTarget) check(ctx context.Context) error {
	out, err := t.open()
	if err != nil {
		return err
	}
	return errors.Join(out.Check(ctx), out.Close(ctx))
}
