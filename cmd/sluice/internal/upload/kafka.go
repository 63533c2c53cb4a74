package upload

import (
	"context"
	"crypto/tls"
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
	"github.com/sluice-go/sluice/sender/kafkasender"
)

// The environment variables that say how to connect to brokers of Kafka and how to authenticate, as
// tls and sasl do in a pipeline file. An address on the command line holds no secrets, because
// every process of the machine can read it.
const (
	KafkaCAVariable         = "KAFKA_CA_FILE"     // certificates to trust beside the system's, in PEM
	KafkaCertVariable       = "KAFKA_CERT_FILE"   // the certificate of this client, in PEM
	KafkaKeyVariable        = "KAFKA_KEY_FILE"    // and its key
	KafkaServerNameVariable = "KAFKA_SERVER_NAME" // in the brokers' certificates, if it is not the host

	KafkaSASLVariable     = "KAFKA_SASL" // plain, scram-sha-256, scram-sha-512, oauthbearer or entra
	KafkaUserVariable     = "KAFKA_USER"
	KafkaPasswordVariable = "KAFKA_PASSWORD"

	KafkaTokenFileVariable    = "KAFKA_TOKEN_FILE" // of oauthbearer: a file with the token, or a server
	KafkaTokenURLVariable     = "KAFKA_TOKEN_URL"
	KafkaClientIDVariable     = "KAFKA_CLIENT_ID"
	KafkaClientSecretVariable = "KAFKA_CLIENT_SECRET"
	KafkaScopeVariable        = "KAFKA_SCOPE"
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
	brokers, cfg, err := d.kafkaCluster()
	if err != nil {
		return nil, err
	}
	return func() (*kafkaTopic, error) {
		client, err := kafka.Open(brokers, cfg)
		if err != nil {
			return nil, err
		}
		t, err := kafkasender.New(client, d.Topic, &kafkasender.Config{MaxMessages: batch})
		return &kafkaTopic{t, client}, err
	}, nil
}

// kafkaCluster returns the brokers and the settings of a client, by the address and the
// environment. It sets the topic if the address names it.
func (d *Destination) kafkaCluster() (brokers []string, cfg *kafka.Config, err error) {
	text, err := d.connectionString()
	if err != nil {
		return nil, nil, err
	}
	address, err := kafka.ParseURL(text)
	switch {
	case err != nil:
		return nil, nil, usage.Errorf("%s: %v", d.flag(), err)
	case d.Hub != "" || d.Queue != "":
		return nil, nil, usage.Errorf("--%s: Kafka has topics only: pass --topic NAME", d.kind())
	case d.Topic == "" && address.Topic == "":
		return nil, nil, usage.Errorf("the topic is missing: pass --topic NAME")
	case d.Topic != "" && address.Topic != "" && d.Topic != address.Topic:
		return nil, nil, usage.Errorf("--topic %s: the address in %s names another topic, %s", d.Topic, d.flag(), address.Topic)
	case address.Topic != "":
		d.Topic = address.Topic
	}
	cfg = &kafka.Config{Timeout: kafkaTimeout}
	if cfg.TLS, err = kafkaTLS(address.TLS); err == nil {
		cfg.Authentication, err = kafkaAuthentication(address.TLS)
	}
	if err != nil {
		return nil, nil, err
	}
	return address.Brokers, cfg, nil
}

// kafkaTLS returns the settings of TLS by the environment, nil for a connection without TLS.
func kafkaTLS(wanted bool) (*tls.Config, error) {
	files := kafka.TLSFiles{CA: os.Getenv(KafkaCAVariable), Certificate: os.Getenv(KafkaCertVariable), Key: os.Getenv(KafkaKeyVariable), ServerName: os.Getenv(KafkaServerNameVariable)}
	switch {
	case !wanted && files != (kafka.TLSFiles{}):
		return nil, usage.Errorf("%s, %s, %s and %s are for TLS: write kafka+tls:// in the address, or unset them", KafkaCAVariable, KafkaCertVariable, KafkaKeyVariable, KafkaServerNameVariable)
	case !wanted:
		return nil, nil
	case (files.Certificate == "") != (files.Key == ""):
		return nil, usage.Errorf("set both %s and %s, or none of them", KafkaCertVariable, KafkaKeyVariable)
	}
	cfg, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("%s, %s and %s: %w", KafkaCAVariable, KafkaCertVariable, KafkaKeyVariable, err)
	}
	return cfg, nil
}

// kafkaAuthentication returns the way to authenticate by the environment, nil for none.
func kafkaAuthentication(encrypted bool) (*kafka.Authentication, error) {
	user, password := os.Getenv(KafkaUserVariable), os.Getenv(KafkaPasswordVariable)
	mechanism := strings.ToLower(os.Getenv(KafkaSASLVariable))
	byPassword := map[string]func(user, password string) *kafka.Authentication{
		"plain": kafka.Plain, "scram-sha-256": kafka.SCRAM256, "scram-sha-512": kafka.SCRAM512,
	}[mechanism]
	switch {
	case mechanism == "" && user+password != "":
		return nil, usage.Errorf("%s is not set: set it to plain, scram-sha-256 or scram-sha-512, or unset %s and %s", KafkaSASLVariable, KafkaUserVariable, KafkaPasswordVariable)
	case mechanism == "":
		return nil, nil
	case mechanism == "oauthbearer":
		return kafkaToken()
	case mechanism == "entra" && !encrypted:
		return nil, usage.Errorf("%s=entra needs TLS: write kafka+tls://NAMESPACE.servicebus.windows.net:9093 in the address", KafkaSASLVariable)
	case mechanism == "entra":
		credential, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return nil, fmt.Errorf("default credential: %w", err)
		}
		return kafka.EntraID(credential), nil
	case byPassword == nil:
		return nil, usage.Errorf("%s: not known: set it to plain, scram-sha-256, scram-sha-512, oauthbearer or entra", KafkaSASLVariable)
	case user == "" || password == "":
		return nil, usage.Errorf("%s and %s must be set for %s", KafkaUserVariable, KafkaPasswordVariable, mechanism)
	}
	return byPassword(user, password), nil
}

// kafkaToken returns OAUTHBEARER with the token of a file, or of an authorization server.
func kafkaToken() (*kafka.Authentication, error) {
	file := os.Getenv(KafkaTokenFileVariable)
	server := &kafka.ClientCredentials{
		URL: os.Getenv(KafkaTokenURLVariable), ID: os.Getenv(KafkaClientIDVariable), Secret: os.Getenv(KafkaClientSecretVariable), Scope: os.Getenv(KafkaScopeVariable),
	}
	switch {
	case file != "" && server.URL == "":
		return kafka.OAuthBearer(kafka.TokenFile(file)), nil
	case file == "" && server.URL != "" && server.ID != "" && server.Secret != "":
		return kafka.OAuthBearer(server.Token), nil
	}
	return nil, usage.Errorf("oauthbearer needs %s, or %s, %s and %s (with %s if the server wants it)", KafkaTokenFileVariable, KafkaTokenURLVariable, KafkaClientIDVariable, KafkaClientSecretVariable, KafkaScopeVariable)
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
	if errors.Is(err, kerr.UnknownTopicOrPartition) && d.Create == 0 {
		return fmt.Errorf("%s: not found: check its name, or pass --create N to create it with N partitions", d)
	}
	return err
}

// create creates the topic, with as many replicas as the brokers' default says. That it exists is
// no error.
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
