package upload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/sender"
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// The environment variables that say how to authenticate with brokers of Kafka. An address on the
// command line holds no secrets, because every process of the machine can read it.
const (
	KafkaSASLVariable     = "KAFKA_SASL" // plain, scram-sha-256, scram-sha-512 or entra
	KafkaUserVariable     = "KAFKA_USER"
	KafkaPasswordVariable = "KAFKA_PASSWORD"
	KafkaCAVariable       = "KAFKA_CA_FILE"   // certificates to trust, in PEM
	KafkaCertVariable     = "KAFKA_CERT_FILE" // the certificate of this client, in PEM
	KafkaKeyVariable      = "KAFKA_KEY_FILE"  // and its key
)

// isKafkaURL reports whether a connection string is the address of brokers of Kafka.
func isKafkaURL(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "kafka://") || strings.HasPrefix(text, "kafka+tls://")
}

// kafkaTopic is a topic of Kafka with a connection of its own.
type kafkaTopic struct {
	*kafkasender.Transport
	client *kafka.Client
}

func (t *kafkaTopic) Close(ctx context.Context) error { return t.client.Close(ctx) }

// kafkaTimeout bounds a request, and the first look-up of the topic.
const kafkaTimeout = 15 * time.Second

// connectKafka opens n connections to a topic of Kafka. It creates the topic if that is wanted, and
// looks it up, so that a wrong address fails before anything is sent.
func (d *Destination) connectKafka(ctx context.Context, n, batch int) (*connections, error) {
	dial, err := d.kafkaDialer(batch)
	if err != nil {
		return nil, err
	}
	c := &connections{}
	for range n {
		t, err := dial()
		if err != nil {
			c.close(ctx)
			return nil, err
		}
		c.transports = append(c.transports, t)
	}
	if err := d.lookUp(ctx, c.transports[0].(*kafkaTopic)); err != nil {
		c.close(ctx)
		return nil, err
	}
	if c.maxBatch, err = c.transports[0].MaxBatchBytes(ctx); err != nil {
		c.close(ctx)
		return nil, err
	}
	return c, nil
}

// kafkaDialer returns a function that opens a connection, by the address and the environment.
func (d *Destination) kafkaDialer(batch int) (dial func() (*kafkaTopic, error), err error) {
	text, err := d.connectionString()
	if err != nil {
		return nil, err
	}
	address, err := kafka.ParseURL(text)
	switch {
	case err != nil:
		return nil, usage.Errorf("--to: %v", err)
	case d.Hub != "" || d.Queue != "":
		return nil, usage.Errorf("--%s: Kafka has topics only: pass --topic NAME", d.kind())
	case d.Topic == "" && address.Topic == "":
		return nil, usage.Errorf("the destination is missing: pass --topic NAME")
	case d.Topic != "" && address.Topic != "" && d.Topic != address.Topic:
		return nil, usage.Errorf("--topic %s: the address in --to names another topic, %s", d.Topic, address.Topic)
	case address.Topic != "":
		d.Topic = address.Topic
	}
	cfg := &kafka.Config{Timeout: kafkaTimeout}
	if cfg.TLS, err = kafkaTLS(address.TLS); err == nil {
		cfg.Authentication, err = kafkaAuthentication(os.Getenv(KafkaSASLVariable))
	}
	if err != nil {
		return nil, err
	}
	return func() (*kafkaTopic, error) {
		client, err := kafka.Open(address.Brokers, cfg)
		if err != nil {
			return nil, err
		}
		t, err := kafkasender.New(client, d.Topic, &kafkasender.Config{MaxMessages: batch})
		return &kafkaTopic{t, client}, err
	}, nil
}

// kafkaTLS returns the settings of TLS by the environment, nil for a connection without TLS.
func kafkaTLS(wanted bool) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, cert, key := os.Getenv(KafkaCAVariable), os.Getenv(KafkaCertVariable), os.Getenv(KafkaKeyVariable)
	if !wanted {
		return nil, nil
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", KafkaCAVariable, err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", KafkaCAVariable, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, usage.Errorf("set both %s and %s, or none of them", KafkaCertVariable, KafkaKeyVariable)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", KafkaCertVariable, KafkaKeyVariable, err)
		}
		cfg.Certificates = append(cfg.Certificates, pair)
	}
	return cfg, nil
}

// kafkaAuthentication returns the way to authenticate by the environment, nil for none.
func kafkaAuthentication(mechanism string) (*kafka.Authentication, error) {
	user, password := os.Getenv(KafkaUserVariable), os.Getenv(KafkaPasswordVariable)
	byPassword := map[string]func(user, password string) *kafka.Authentication{
		"plain": kafka.Plain, "scram-sha-256": kafka.SCRAM256, "scram-sha-512": kafka.SCRAM512,
	}
	mechanism = strings.ToLower(mechanism)
	authenticate := byPassword[mechanism]
	switch {
	case mechanism == "" && user+password != "":
		return nil, usage.Errorf("%s is not set: set it to plain, scram-sha-256 or scram-sha-512, or unset %s and %s", KafkaSASLVariable, KafkaUserVariable, KafkaPasswordVariable)
	case mechanism == "":
		return nil, nil
	case mechanism == "entra":
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		return kafka.EntraID(credential), nil
	case authenticate == nil:
		return nil, usage.Errorf("%s: not known: set it to plain, scram-sha-256, scram-sha-512 or entra", KafkaSASLVariable)
	case user == "" || password == "":
		return nil, usage.Errorf("%s and %s must be set for %s", KafkaUserVariable, KafkaPasswordVariable, mechanism)
	}
	return authenticate(user, password), nil
}

// lookUp looks up the topic, after it has created it if that is wanted and it is missing.
func (d *Destination) lookUp(ctx context.Context, t *kafkaTopic) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	if d.Create > 0 {
		if err := d.create(ctx, t.client); err != nil {
			return err
		}
	}
	err := t.Check(ctx)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition) && d.Create == 0:
		return fmt.Errorf("%s: not found: check its name, or pass --create N to create it with N partitions", d)
	case err != nil && !errors.Is(err, sender.ErrPermanent):
		return fmt.Errorf("%w: check the brokers in --to, and whether they run", err)
	}
	return err
}

// create creates the topic, with as many replicas as the brokers' default says. That it exists is no
// error.
func (d *Destination) create(ctx context.Context, client *kafka.Client) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = d.Topic, d.Create, -1
	request.Topics = append(request.Topics, topic)
	request.TimeoutMillis = int32(kafkaTimeout.Milliseconds())
	answer, err := request.RequestWith(ctx, client.Requests())
	if err == nil && len(answer.Topics) == 1 {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("create topic %s: not authorised: grant the operation Create on the topic, or create it as another user", d.Topic)
	}
	return client.Explain("create topic "+d.Topic, err)
}
