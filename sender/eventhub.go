package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// EventHubConfig holds what has a default. The zero value is ready to use.
type EventHubConfig struct {
	// MaxBytes bounds a batch's size. Default: what the link negotiates, 1 MiB
	// on Azure (256 KiB on the basic tier).
	MaxBytes int
	// MaxMessages is how many messages a batch may have. Default: any number.
	MaxMessages int
	// Client is the client library's own options. Its RetryOptions don't
	// count: a [Sender] does that, and keeps account of it.
	Client azeventhubs.ProducerClientOptions
}

// EventHub is an event hub as a [Transport].
//
// The client library sends a batch once more on its own, unheard, if the
// service detaches its link meanwhile. Was the batch stored though it got no
// answer, it is there twice and not in the report's PossibleDuplicates.
type EventHub struct {
	client      *azeventhubs.ProducerClient
	maxBytes    uint64
	maxMessages int
}

// OpenEventHub makes a transport from a connection string. The hub may be empty
// if the string names one in EntityPath. It doesn't connect yet.
func OpenEventHub(connectionString, hub string, cfg *EventHubConfig) (*EventHub, error) {
	return openEventHub(cfg, func(o *azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error) {
		return azeventhubs.NewProducerClientFromConnectionString(connectionString, hub, o)
	})
}

// OpenEventHubWithCredential makes a transport that signs in with Entra ID. The
// namespace is like contoso.servicebus.windows.net. It doesn't connect yet.
func OpenEventHubWithCredential(namespace, hub string, credential azcore.TokenCredential, cfg *EventHubConfig) (*EventHub, error) {
	return openEventHub(cfg, func(o *azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error) {
		return azeventhubs.NewProducerClient(namespace, hub, credential, o)
	})
}

func openEventHub(cfg *EventHubConfig, open func(*azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error)) (*EventHub, error) {
	var c EventHubConfig
	if cfg != nil {
		c = *cfg
	}
	if c.MaxBytes < 0 || c.MaxMessages < 0 {
		return nil, fmt.Errorf("batches of up to %d messages and %d bytes: must be positive", c.MaxMessages, c.MaxBytes)
	}
	c.Client.RetryOptions = azeventhubs.RetryOptions{MaxRetries: -1}
	client, err := open(&c.Client)
	if err != nil {
		return nil, fmt.Errorf("event hub client: %w", err)
	}
	return &EventHub{client: client, maxBytes: uint64(c.MaxBytes), maxMessages: cmp.Or(c.MaxMessages, math.MaxInt)}, nil
}

// Close closes the links and the connection.
func (h *EventHub) Close(ctx context.Context) error { return h.client.Close(ctx) }

// Partitions implements [Transport].
func (h *EventHub) Partitions(ctx context.Context) ([]string, error) {
	properties, err := h.client.GetEventHubProperties(ctx, nil)
	if err != nil {
		return nil, explain(err)
	}
	return properties.PartitionIDs, nil
}

// MaxBatchBytes is how large a batch may be, in bytes.
func (h *EventHub) MaxBatchBytes(ctx context.Context) (int, error) {
	partitions, err := h.Partitions(ctx)
	if err != nil {
		return 0, err
	}
	return maxBatchBytes(func() (Batch, error) { return h.NewBatch(ctx, partitions[0]) })
}

// NewBatch implements [Transport].
func (h *EventHub) NewBatch(ctx context.Context, partition string) (Batch, error) {
	batch, err := h.client.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: &partition, MaxBytes: h.maxBytes})
	if err != nil {
		return nil, explain(err)
	}
	return &eventBatch{partition: partition, batch: batch, maxMessages: h.maxMessages}, nil
}

// Send implements [Transport].
func (h *EventHub) Send(ctx context.Context, batch Batch) (Outcome, error) {
	b := batch.(*eventBatch)
	// What fails to open a link has sent nothing.
	if _, err := h.NewBatch(ctx, b.partition); err != nil {
		if errors.Is(err, ErrPermanent) {
			return OutcomeDenied, err
		}
		return OutcomeBusy, err
	}
	err := h.client.SendEventDataBatch(ctx, b.batch, nil)
	if err == nil {
		return OutcomeAccepted, nil
	}
	return outcomeOf(err), explain(err)
}

// explain marks an error that trying again doesn't mend.
func explain(err error) error {
	var own *azeventhubs.Error
	if isPermanent(err) || errors.As(err, &own) && own.Code == azeventhubs.ErrorCodeUnauthorizedAccess {
		return fmt.Errorf("%w: %w", err, ErrPermanent)
	}
	return err
}

// eventBatch uses the memory around a message's parts again, since the library
// encodes a message at once. Only the first message, whose parts the library
// keeps for the batch's envelope, has them to itself.
type eventBatch struct {
	partition   string
	batch       *azeventhubs.EventDataBatch
	maxMessages int
	contentType *string               // nothing writes to it
	loose       azeventhubs.EventData // an event without a key
	keyed       keyedEvent
}

// keyedEvent is an event with a key. The library encodes what pointers point to,
// so that the key and the ids need no memory of their own.
type keyedEvent struct {
	message              azeventhubs.AMQPAnnotatedMessage
	properties           azeventhubs.AMQPAnnotatedMessageProperties
	key, id, correlation string
}

func (b *eventBatch) Len() int   { return int(b.batch.NumEvents()) }
func (b *eventBatch) Bytes() int { return int(b.batch.NumBytes()) }

func (b *eventBatch) Add(m *Message) error {
	var err error
	switch {
	case b.Len() == b.maxMessages:
		return ErrTooLarge
	case m.SessionID != "":
		err = errors.New("event hubs have no sessions: give the message a key")
	case m.Key == "":
		err = b.batch.AddEventData(b.plain(m), nil)
	case longer(m.Key, maxKey):
		err = fmt.Errorf("partition key has more than %d characters", maxKey)
	default:
		e := &b.keyed
		if b.Len() == 0 {
			e = &keyedEvent{}
		}
		err = b.batch.AddAMQPAnnotatedMessage(e.set(m, b.kind(m)), nil)
	}
	if errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		return ErrTooLarge
	}
	return err
}

func (b *eventBatch) plain(m *Message) *azeventhubs.EventData {
	e := &b.loose
	*e = azeventhubs.EventData{Body: m.Body, Properties: m.Properties, ContentType: b.kind(m)}
	if m.MessageID != "" {
		e.MessageID = &m.MessageID
	}
	if m.CorrelationID != "" {
		e.CorrelationID = m.CorrelationID
	}
	return e
}

// set makes the event of a message.
func (e *keyedEvent) set(m *Message, contentType *string) *azeventhubs.AMQPAnnotatedMessage {
	if e.message.Properties == nil {
		e.message.MessageAnnotations, e.message.Properties = map[any]any{keyAnnotation: &e.key}, &e.properties
	}
	e.key, e.id, e.correlation = m.Key, m.MessageID, m.CorrelationID
	e.properties = azeventhubs.AMQPAnnotatedMessageProperties{ContentType: contentType}
	if e.id != "" {
		e.properties.MessageID = &e.id
	}
	if e.correlation != "" {
		e.properties.CorrelationID = &e.correlation
	}
	e.message.ApplicationProperties = m.Properties
	e.message.Body.Data = append(e.message.Body.Data[:0], m.Body)
	return &e.message
}

// kind is the content type, nil if there is none.
func (b *eventBatch) kind(m *Message) *string {
	if m.ContentType == "" {
		return nil
	}
	if b.contentType == nil || *b.contentType != m.ContentType {
		kind := m.ContentType
		b.contentType = &kind
	}
	return b.contentType
}

// Size implements [Sizer].
func (b *eventBatch) Size(m *Message) (int, error) {
	event := amqp.Message{Properties: &amqp.MessageProperties{MessageID: m.MessageID}}
	if len(m.Properties) > 0 || m.Key != "" {
		event.ApplicationProperties = m.Properties
	}
	if m.MessageID == "" {
		event.Properties.MessageID = generatedID
	}
	if m.Key != "" {
		event.Annotations = amqp.Annotations{keyAnnotation: m.Key}
	}
	if m.CorrelationID != "" {
		event.Properties.CorrelationID = m.CorrelationID
	}
	if m.ContentType != "" {
		event.Properties.ContentType = &m.ContentType
	}
	return batchSize(&event, m.Body)
}
