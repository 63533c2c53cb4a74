package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// EventHubConfig holds optional settings. The zero value is ready to use.
type EventHubConfig struct {
	// MaxBytes is how large a batch may be. Default: what the link negotiates,
	// 1 MiB on Azure (256 KiB in the basic tier).
	MaxBytes int
	// MaxMessages is how many messages a batch may have. Default: any number.
	MaxMessages int
	// Client is the options of the client library. Its RetryOptions are ignored:
	// a [Sender] retries, and reports it.
	Client azeventhubs.ProducerClientOptions
}

// EventHub is a [Transport] to an event hub. It is safe for concurrent use.
//
// If the service detaches the link during a send, the client library sends the
// batch once more without reporting it. If the batch had been stored without an
// answer, it is then stored twice and missing from
// [Report.PossibleDuplicates].
type EventHub struct {
	maxBytes    uint64
	maxMessages int
	open        func() (*azeventhubs.ProducerClient, error)
	idleLimit   time.Duration

	mu     sync.Mutex
	client *azeventhubs.ProducerClient
	users  int
	used   time.Time // when the last use ended
}

// OpenEventHub makes a transport from a connection string. hub must be empty if
// the string names the hub in EntityPath. OpenEventHub doesn't connect yet.
func OpenEventHub(connectionString, hub string, cfg *EventHubConfig) (*EventHub, error) {
	if strings.TrimSpace(connectionString) == "" {
		return nil, errors.New("event hub client: the connection string is empty: copy it from the namespace's shared access policies")
	}
	return newEventHub(cfg, func(o *azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error) {
		return azeventhubs.NewProducerClientFromConnectionString(connectionString, hub, o)
	})
}

// OpenEventHubWithCredential makes a transport that signs in with Entra ID. The
// namespace is a host name, like contoso.servicebus.windows.net.
// OpenEventHubWithCredential doesn't connect yet.
func OpenEventHubWithCredential(namespace, hub string, credential azcore.TokenCredential, cfg *EventHubConfig) (*EventHub, error) {
	return newEventHub(cfg, func(o *azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error) {
		return azeventhubs.NewProducerClient(namespace, hub, credential, o)
	})
}

func newEventHub(cfg *EventHubConfig, open func(*azeventhubs.ProducerClientOptions) (*azeventhubs.ProducerClient, error)) (*EventHub, error) {
	var c EventHubConfig
	if cfg != nil {
		c = *cfg
	}
	if c.MaxBytes < 0 || c.MaxMessages < 0 {
		return nil, fmt.Errorf("event hub: MaxMessages %d and MaxBytes %d must not be negative", c.MaxMessages, c.MaxBytes)
	}
	c.Client.RetryOptions = azeventhubs.RetryOptions{MaxRetries: -1}
	h := &EventHub{maxBytes: uint64(c.MaxBytes), maxMessages: cmp.Or(c.MaxMessages, math.MaxInt), idleLimit: idleLimit}
	h.open = func() (*azeventhubs.ProducerClient, error) { return open(&c.Client) }
	var err error
	if h.client, err = h.open(); err != nil {
		return nil, fmt.Errorf("event hub client: %w", err)
	}
	return h, nil
}

// Close closes the links and the connection. No SendAll or [Sink] may use the
// transport any more.
func (h *EventHub) Close(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.client.Close(ctx)
}

// use returns the client, or another one in its place if it was idle.
// [EventHub.release] must follow.
func (h *EventHub) use() *azeventhubs.ProducerClient {
	h.mu.Lock()
	if h.users == 0 && !h.used.IsZero() && time.Since(h.used) > h.idleLimit {
		if fresh, err := h.open(); err == nil { // it doesn't connect yet
			defer closeIdle(h.client) // once mu is unlocked
			h.client = fresh
		}
	}
	defer h.mu.Unlock()
	h.users++
	return h.client
}

// closeIdle closes a client whose connection the service has closed, or would.
func closeIdle(client *azeventhubs.ProducerClient) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = client.Close(ctx)
}

func (h *EventHub) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	h.used = time.Now()
}

// Partitions implements [Transport].
func (h *EventHub) Partitions(ctx context.Context) ([]string, error) {
	defer h.release()
	client := h.use()
	var properties azeventhubs.EventHubProperties
	err := repeatBusy(ctx, func() (err error) {
		properties, err = client.GetEventHubProperties(ctx, nil)
		return err
	})
	if err != nil {
		return nil, explainEventHub(err)
	}
	return properties.PartitionIDs, nil
}

// MaxBatchBytes returns how large a batch may be, in bytes. It connects.
func (h *EventHub) MaxBatchBytes(ctx context.Context) (int, error) {
	partitions, err := h.Partitions(ctx)
	if err != nil {
		return 0, err
	}
	return maxBatchBytes(ctx, func() (Batch, error) { return h.NewBatch(ctx, partitions[0]) })
}

// NewBatch implements [Transport].
func (h *EventHub) NewBatch(ctx context.Context, partition string) (Batch, error) {
	defer h.release()
	batch, err := h.use().NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: &partition, MaxBytes: h.maxBytes})
	if err != nil {
		return nil, explainEventHub(err)
	}
	return &eventBatch{partition: partition, batch: batch, maxMessages: h.maxMessages}, nil
}

// Send implements [Transport].
func (h *EventHub) Send(ctx context.Context, batch Batch) (Outcome, error) {
	b := batch.(*eventBatch)
	client := h.use()
	defer h.release()
	// If the link can't be opened, nothing was sent.
	if _, err := h.NewBatch(ctx, b.partition); err != nil {
		if errors.Is(err, ErrPermanent) {
			return OutcomeDenied, err
		}
		return OutcomeBusy, err
	}
	err := client.SendEventDataBatch(ctx, b.batch, nil)
	if err == nil {
		return OutcomeAccepted, nil
	}
	return outcomeOf(err), explainEventHub(err)
}

// explainEventHub marks an error that a retry doesn't cure.
func explainEventHub(err error) error {
	var own *azeventhubs.Error
	if isPermanent(err) || errors.As(err, &own) && own.Code == azeventhubs.ErrorCodeUnauthorizedAccess {
		return fmt.Errorf("%w: %w", err, ErrPermanent)
	}
	return err
}

// eventBatch reuses the memory around the parts of a message, because the library
// encodes each message at once. Only the batch's first message has that memory to
// itself: the library keeps it for the batch's envelope.
type eventBatch struct {
	partition   string
	batch       *azeventhubs.EventDataBatch
	maxMessages int
	contentType *string               // is never written to, so messages share it
	keyless     azeventhubs.EventData // an event without a key
	keyed       keyedEvent
}

// keyedEvent is an event with a key. The library encodes what pointers point to,
// so the key and the ids need no memory of their own.
type keyedEvent struct {
	message              azeventhubs.AMQPAnnotatedMessage
	properties           azeventhubs.AMQPAnnotatedMessageProperties
	key, id, correlation string
}

func (b *eventBatch) Len() int   { return int(b.batch.NumEvents()) }
func (b *eventBatch) Bytes() int { return int(b.batch.NumBytes()) }

func (b *eventBatch) Add(m *Message) error {
	err := m.checkKafkaOnly()
	if err == nil {
		err = m.CheckServiceBusOnly()
	}
	switch {
	case err != nil:
	case b.Len() == b.maxMessages:
		return ErrTooLarge
	case m.Key == "":
		err = b.batch.AddEventData(b.event(m), nil)
	case longer(m.Key, maxKey):
		err = fmt.Errorf("partition key has more than %d characters", maxKey)
	default:
		e := &b.keyed
		if b.Len() == 0 {
			e = &keyedEvent{}
		}
		err = b.batch.AddAMQPAnnotatedMessage(e.set(m, b.contentTypeOf(m)), nil)
	}
	if errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		return ErrTooLarge
	}
	return err
}

// event makes the event of a message without a key.
func (b *eventBatch) event(m *Message) *azeventhubs.EventData {
	e := &b.keyless
	*e = azeventhubs.EventData{Body: m.Body, Properties: wireProperties(m.Properties), ContentType: b.contentTypeOf(m)}
	if m.MessageID != "" {
		e.MessageID = &m.MessageID
	}
	if m.CorrelationID != "" {
		e.CorrelationID = m.CorrelationID
	}
	return e
}

// set makes the event of a message with a key.
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
	e.message.ApplicationProperties = wireProperties(m.Properties)
	e.message.Body.Data = append(e.message.Body.Data[:0], m.Body)
	return &e.message
}

// contentTypeOf is a message's content type, nil if it has none.
func (b *eventBatch) contentTypeOf(m *Message) *string {
	if m.ContentType == "" {
		return nil
	}
	if b.contentType == nil || *b.contentType != m.ContentType {
		contentType := m.ContentType
		b.contentType = &contentType
	}
	return b.contentType
}

// Size implements [Sizer].
func (b *eventBatch) Size(m *Message) (int, error) {
	event := amqp.Message{Properties: &amqp.MessageProperties{MessageID: m.MessageID}}
	if len(m.Properties) > 0 || m.Key != "" {
		event.ApplicationProperties = wireProperties(m.Properties)
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
