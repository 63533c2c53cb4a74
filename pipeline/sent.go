package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/stamp"
)

func (h *hub) kind() string         { return "eventhub" }
func (t *topicTarget) kind() string { return "kafka" }

func (e *serviceBusEntity) kind() string {
	if e.topic {
		return "topic"
	}
	return "queue"
}

// destination returns what the pipeline sends to; nil: its target is another, or it has routes.
func (p *Pipeline) destination() destination {
	if t, ok := p.target().(*messageTarget); ok {
		return t.destination
	}
	return nil
}

// TargetLog returns a source that reads the hub or topic which the pipeline sends to, nil if it
// sends to none. It connects when it is first used. The caller closes it.
func (p *Pipeline) TargetLog(consumerGroup string) (source Source, err error) {
	switch to := p.destination().(type) {
	case *hub:
		source, err = to.open(consumerGroup)
	case *topicTarget:
		source, err = (&kafkaTopic{cluster: to.cluster, name: to.name}).open(consumerGroup)
	default:
		return nil, nil
	}
	return source, p.problem(p.places.target, err)
}

// SentStamps returns a reader of the stamps that the pipeline sends.
func (p *Pipeline) SentStamps() *stamp.Reader {
	return stamp.NewReader(p.stampKeys.appendSources(nil, p.Group.Topic))
}

// ErrSubscription means that a topic of Service Bus shows its messages only through a subscription.
var ErrSubscription = errors.New("a topic of Service Bus shows its messages through a subscription only")

// peekCount is how many messages one request peeks at.
const peekCount = 1000

// Peek yields the application properties of the messages that wait in the queue which the pipeline
// sends to, or in a subscription of the topic, and then of those in its dead-letter queue. The
// messages stay there. Messages that were received and completed, or have expired, are not seen. It
// reports false if the target is neither, and returns an ErrSubscription if it is a topic and
// subscription is empty.
func (p *Pipeline) Peek(ctx context.Context, subscription string, yield func(properties map[string]any, dead bool) error) (bool, error) {
	entity, ok := p.destination().(*serviceBusEntity)
	if !ok {
		return false, nil
	}
	if entity.topic && subscription == "" {
		return true, ErrSubscription
	}
	return true, p.problem(p.places.target, entity.peek(ctx, subscription, yield))
}

func (e *serviceBusEntity) peek(ctx context.Context, subscription string, yield func(map[string]any, bool) error) error {
	client, err := e.client()
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	for _, dead := range []bool{false, true} {
		if err := e.peekAll(ctx, client, subscription, dead, yield); err != nil {
			return fmt.Errorf("peek at the messages of %s: %w", e.name, err)
		}
	}
	return nil
}

// client returns a client of the namespace.
func (e *serviceBusEntity) client() (*azservicebus.Client, error) {
	options := &azservicebus.ClientOptions{ApplicationID: "sluice", TLSConfig: e.tls}
	if e.websocket {
		options.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return e.dial(ctx, args.Host)
		}
	}
	if e.connection != "" {
		return azservicebus.NewClientFromConnectionString(e.connection, options)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, fmt.Errorf("default credential: %w", err)
	}
	return azservicebus.NewClient(e.host, credential, options)
}

func (e *serviceBusEntity) peekAll(ctx context.Context, client *azservicebus.Client, subscription string, dead bool, yield func(map[string]any, bool) error) error {
	options := &azservicebus.ReceiverOptions{}
	if dead {
		options.SubQueue = azservicebus.SubQueueDeadLetter
	}
	var receiver *azservicebus.Receiver
	var err error
	if e.topic {
		receiver, err = client.NewReceiverForSubscription(e.name, subscription, options)
	} else {
		receiver, err = client.NewReceiverForQueue(e.name, options)
	}
	if err != nil {
		return err
	}
	defer receiver.Close(context.WithoutCancel(ctx))
	var next int64
	for {
		messages, err := receiver.PeekMessages(ctx, peekCount, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &next})
		if err != nil || len(messages) == 0 {
			return err
		}
		for _, m := range messages {
			if m.SequenceNumber != nil {
				next = max(next, *m.SequenceNumber+1)
			}
			if err := yield(m.ApplicationProperties, dead); err != nil {
				return err
			}
		}
	}
}
