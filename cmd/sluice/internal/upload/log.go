package upload

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/kafka"
)

// Log is a hub or a topic that is read. Close ends its connections.
type Log interface {
	driver.Source
	Close(ctx context.Context) error
}

// Logs returns a function that opens the hub or the topic for reading, in a consumer group. A log
// connects when it is first used.
func (d *Destination) Logs(ctx context.Context) (open func(group string) (Log, error), err error) {
	if d.IsKafka() {
		return d.kafkaLogs()
	}
	if d.Namespace != "" {
		credential, err := d.defaultCredential(ctx)
		if err != nil {
			return nil, err
		}
		return d.hubLogs("", credential)
	}
	connection, err := d.connectionString()
	if err != nil {
		return nil, err
	}
	return d.hubLogs(connection, nil)
}

func (d *Destination) hubLogs(connection string, credential azcore.TokenCredential) (open func(string) (Log, error), err error) {
	properties, err := azeventhubs.ParseConnectionString(connection)
	if d.Hub == "" && (credential != nil || err == nil && properties.EntityPath == nil) {
		return nil, usage.Errorf("the hub is missing: pass --hub NAME")
	}
	proxy, err := d.WebSocket.proxy()
	if err != nil {
		return nil, err
	}
	return func(group string) (Log, error) {
		cfg := &eventhub.Config{ConsumerGroup: group, OverWebSocket: d.WebSocket.Enabled, Proxy: proxy}
		if credential != nil {
			return logOf(eventhub.NewWithCredential(d.Namespace, d.Hub, credential, cfg))
		}
		return logOf(eventhub.New(connection, d.Hub, cfg))
	}, nil
}

// logOf returns no log beside an error.
func logOf(source *eventhub.Source, err error) (Log, error) {
	if err != nil {
		return nil, err
	}
	return source, nil
}

// topicLog is a topic with a client of its own.
type topicLog struct {
	*kafka.Source
	client *kafka.Client
}

func (t *topicLog) Close(ctx context.Context) error {
	return errors.Join(t.Source.Close(ctx), t.client.Close(ctx))
}

func (d *Destination) kafkaLogs() (open func(string) (Log, error), err error) {
	brokers, cfg, err := d.kafkaCluster()
	if err != nil {
		return nil, err
	}
	return func(group string) (Log, error) {
		client, err := kafka.Open(brokers, cfg)
		if err != nil {
			return nil, err
		}
		source, err := client.Source(d.Topic, group, nil)
		if err != nil {
			return nil, errors.Join(err, client.Close(context.Background()))
		}
		return &topicLog{source, client}, nil
	}, nil
}
