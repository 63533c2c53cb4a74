package sender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// ServiceBusConfig holds what has a default. The zero value is ready to use.
type ServiceBusConfig struct {
	// Writers is how many batches may be on their way: a session belongs to one of
	// as many lanes, each with one batch at a time. Default: 4.
	Writers int
	// MaxBytes bounds a batch's size. Default: what the link negotiates, 256 KiB
	// in Azure's standard tier and 1 MiB in the premium tier.
	MaxBytes int
	// MaxMessages is how many messages a batch may have. Default: 4,500, what
	// the basic and standard tiers take; premium takes more.
	MaxMessages int
	// Partitioned says that the queue or topic is partitioned: a batch then has
	// messages of one session or key only, as the service wants, and ends where
	// the next message has another. Where it detects duplicates too, the service
	// wants MaxMessages to be 1. Default: messages of all sessions share batches.
	Partitioned bool
	// Client is the client library's own options. Its RetryOptions don't
	// count: a [Sender] does that, and keeps account of it.
	Client azservicebus.ClientOptions
}

// ServiceBus is a queue or a topic as a [Transport]. It has no partitions that
// a sender could choose, so its lanes take their part.
//
// The client library sends a batch once more on its own, unheard, if the
// service detaches its link meanwhile. Was the batch stored though it got no
// answer, it is there twice and not in the report's PossibleDuplicates, unless the
// queue or topic detects duplicates.
type ServiceBus struct {
	cfg   ServiceBusConfig
	lanes []string
	dial  func() (*busLink, error)

	mu     sync.Mutex
	link   *busLink // nil: the next to need one opens it
	closed bool
}

// OpenServiceBus makes a transport from a connection string and the name of a
// queue or topic, which may be empty if the string has it in EntityPath. It
// doesn't connect yet.
func OpenServiceBus(connectionString, entity string, cfg *ServiceBusConfig) (*ServiceBus, error) {
	if entity == "" {
		// The string has the same form for both services.
		if named, err := azeventhubs.ParseConnectionString(connectionString); err == nil && named.EntityPath != nil {
			entity = *named.EntityPath
		}
	}
	return openServiceBus(entity, cfg, func(o *azservicebus.ClientOptions) (*azservicebus.Client, error) {
		return azservicebus.NewClientFromConnectionString(connectionString, o)
	})
}

// OpenServiceBusWithCredential makes a transport that signs in with Entra ID.
// The namespace is like contoso.servicebus.windows.net. It doesn't connect yet.
func OpenServiceBusWithCredential(namespace, entity string, credential azcore.TokenCredential, cfg *ServiceBusConfig) (*ServiceBus, error) {
	return openServiceBus(entity, cfg, func(o *azservicebus.ClientOptions) (*azservicebus.Client, error) {
		return azservicebus.NewClient(namespace, credential, o)
	})
}

func openServiceBus(entity string, cfg *ServiceBusConfig, open func(*azservicebus.ClientOptions) (*azservicebus.Client, error)) (*ServiceBus, error) {
	b := &ServiceBus{}
	if cfg != nil {
		b.cfg = *cfg
	}
	c := &b.cfg
	c.Writers, c.MaxMessages = cmp.Or(c.Writers, 4), cmp.Or(c.MaxMessages, 4500)
	switch {
	case entity == "":
		return nil, errors.New("the name of the queue or topic is missing")
	case c.Writers < 0 || c.MaxMessages < 0 || c.MaxBytes < 0:
		return nil, fmt.Errorf("%d lanes, batches of up to %d messages and %d bytes: must be positive", c.Writers, c.MaxMessages, c.MaxBytes)
	}
	for i := range c.Writers {
		b.lanes = append(b.lanes, strconv.Itoa(i))
	}
	c.Client.RetryOptions = azservicebus.RetryOptions{MaxRetries: -1}
	b.dial = func() (*busLink, error) {
		client, err := open(&c.Client)
		if err != nil {
			return nil, fmt.Errorf("service bus client: %w", err)
		}
		sender, err := client.NewSender(entity, nil)
		if err != nil {
			return nil, fmt.Errorf("service bus sender: %w", err)
		}
		return &busLink{client: client, sender: sender}, nil
	}
	var err error
	b.link, err = b.dial()
	return b, err
}

// Close closes the link and the connection. Nothing may be on its way.
func (b *ServiceBus) Close(ctx context.Context) error {
	b.mu.Lock()
	l := b.link
	b.link, b.closed = nil, true
	b.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.client.Close(ctx)
}

// busLink is a link with a connection of its own. Without its own retries, in
// which it would send again unheard, the client library never leaves a
// connection that is lost: so the link is given up with it.
type busLink struct {
	client *azservicebus.Client
	sender *azservicebus.Sender
	users  int // the transport's mu guards it
}

// use takes the link, or opens another. [ServiceBus.leave] must follow.
func (b *ServiceBus) use() (*busLink, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, fmt.Errorf("the transport is closed: %w", ErrPermanent)
	case b.link == nil:
		l, err := b.dial()
		if err != nil {
			return nil, err
		}
		b.link = l
	}
	b.link.users++
	return b.link, nil
}

// hangUpWithin bounds the good-bye to a connection that is given up.
const hangUpWithin = 2 * time.Second

// leave gives the link back, and up if what came of its use says so. The last to
// leave one that is given up closes it: others may have answers to come on it.
func (b *ServiceBus) leave(l *busLink, err error) {
	b.mu.Lock()
	if err != nil && outcomeOf(err) == OutcomeUnknown && b.link == l {
		b.link = nil
	}
	l.users--
	over := l.users == 0 && b.link != l
	b.mu.Unlock()
	if over {
		ctx, cancel := context.WithTimeout(context.Background(), hangUpWithin)
		defer cancel()
		_ = l.client.Close(ctx) // it has failed already
	}
}

// Partitions implements [Transport].
func (b *ServiceBus) Partitions(context.Context) ([]string, error) { return b.lanes, nil }

// MixesPartitions implements [PartitionMixer].
func (b *ServiceBus) MixesPartitions() bool { return true }

// MaxBatchBytes is how large a batch may be, in bytes.
func (b *ServiceBus) MaxBatchBytes(ctx context.Context) (int, error) {
	return maxBatchBytes(func() (Batch, error) { return b.NewBatch(ctx, "") })
}

// NewBatch implements [Transport].
func (b *ServiceBus) NewBatch(ctx context.Context, _ string) (Batch, error) {
	l, err := b.use()
	if err != nil {
		return nil, err
	}
	batch, err := l.batch(ctx, b.cfg.MaxBytes)
	b.leave(l, err)
	if err != nil {
		return nil, explainBus(err)
	}
	return &busBatch{cfg: &b.cfg, batch: batch}, nil
}

func (l *busLink) batch(ctx context.Context, maxBytes int) (*azservicebus.MessageBatch, error) {
	return l.sender.NewMessageBatch(ctx, &azservicebus.MessageBatchOptions{MaxBytes: uint64(maxBytes)})
}

// Send implements [Transport].
func (b *ServiceBus) Send(ctx context.Context, batch Batch) (outcome Outcome, err error) {
	l, err := b.use()
	if err != nil {
		return OutcomeDenied, err
	}
	defer func() { b.leave(l, err) }()
	// What fails to open a link has sent nothing.
	if _, err = l.batch(ctx, 0); err != nil {
		err = explainBus(err)
		if errors.Is(err, ErrPermanent) {
			return OutcomeDenied, err
		}
		return OutcomeBusy, err
	}
	if err = l.sender.SendMessageBatch(ctx, batch.(*busBatch).batch, nil); err != nil {
		return outcomeOf(err), explainBus(err)
	}
	return OutcomeAccepted, nil
}

// explainBus marks an error that trying again doesn't mend. The library's own
// kind of error doesn't tell what it is made of.
func explainBus(err error) error {
	var own *azservicebus.Error
	if isPermanent(err) || errors.As(err, &own) && (own.Code == azservicebus.CodeUnauthorizedAccess || own.Code == azservicebus.CodeNotFound) {
		return fmt.Errorf("%w: %w", err, ErrPermanent)
	}
	return err
}

// The service's limits of what a message has beside its body, from its
// documented quotas.
const (
	maxID         = 128      // characters of the ids of messages and sessions
	maxProperty   = 32 << 10 // bytes of one property
	maxProperties = 64 << 10 // of all together
)

// busBatch uses the memory around a message's parts again, since the library
// encodes a message at once. Only the first message, whose parts the library
// keeps for the batch's envelope, has them to itself.
type busBatch struct {
	cfg         *ServiceBusConfig
	batch       *azservicebus.MessageBatch
	message     azservicebus.AMQPAnnotatedMessage
	properties  azservicebus.AMQPAnnotatedMessageProperties
	annotations map[any]any
	key         string // of all, if partitioned
}

func (b *busBatch) Len() int   { return int(b.batch.NumMessages()) }
func (b *busBatch) Bytes() int { return int(b.batch.NumBytes()) }

func (b *busBatch) Add(m *Message) error {
	if err := checkBus(m); err != nil {
		return err
	}
	n, key := b.Len(), m.group()
	if n == b.cfg.MaxMessages || b.cfg.Partitioned && n > 0 && key != b.key {
		return ErrTooLarge
	}
	err := b.batch.AddAMQPAnnotatedMessage(b.annotated(m), nil)
	switch {
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return ErrTooLarge
	case err == nil:
		b.key = key
	}
	return err
}

// checkBus tells what of a message the service doesn't take: it would refuse
// the whole batch.
func checkBus(m *Message) error {
	switch {
	case m.SessionID != "" && m.Key != "" && m.Key != m.SessionID:
		return errors.New("the partition key is not the session's id: leave it out")
	case longer(m.SessionID, maxID):
		return fmt.Errorf("session id has more than %d characters", maxID)
	case longer(m.Key, maxKey):
		return fmt.Errorf("partition key has more than %d characters", maxKey)
	case longer(m.MessageID, maxID):
		return fmt.Errorf("message id has more than %d characters", maxID)
	case overhead(m) > maxProperties:
		return fmt.Errorf("properties have more than %d bytes", maxProperties)
	}
	for name, value := range m.Properties {
		text, _ := value.(string)
		binary, _ := value.([]byte)
		if len(text) > maxProperty || len(binary) > maxProperty {
			return fmt.Errorf("property %.50q has more than %d bytes", name, maxProperty)
		}
	}
	return nil
}

func (b *busBatch) annotated(m *Message) *azservicebus.AMQPAnnotatedMessage {
	if b.Len() == 0 {
		first := *m
		m = &first
	}
	b.properties = azservicebus.AMQPAnnotatedMessageProperties{}
	if m.MessageID != "" {
		b.properties.MessageID = m.MessageID
	}
	if m.CorrelationID != "" {
		b.properties.CorrelationID = m.CorrelationID
	}
	if m.ContentType != "" {
		b.properties.ContentType = &m.ContentType
	}
	b.message.MessageAnnotations = nil
	if m.Key != "" {
		if b.annotations == nil {
			b.annotations = make(map[any]any, 1)
		}
		b.annotations[keyAnnotation] = m.Key
		b.message.MessageAnnotations = b.annotations
	}
	if m.SessionID != "" {
		b.properties.GroupID = &m.SessionID
	}
	b.message.Properties, b.message.ApplicationProperties = &b.properties, m.Properties
	b.message.Body.Data = append(b.message.Body.Data[:0], m.Body)
	return &b.message
}

// Size implements [Sizer].
func (b *busBatch) Size(m *Message) (int, error) {
	message := amqp.Message{Properties: &amqp.MessageProperties{MessageID: m.MessageID}, Annotations: amqp.Annotations{}, ApplicationProperties: m.Properties}
	if m.MessageID == "" {
		message.Properties.MessageID = generatedID
	}
	if m.Key != "" {
		message.Annotations[keyAnnotation] = m.Key
	}
	if m.SessionID != "" {
		message.Properties.GroupID = &m.SessionID
	}
	if m.CorrelationID != "" {
		message.Properties.CorrelationID = m.CorrelationID
	}
	if m.ContentType != "" {
		message.Properties.ContentType = &m.ContentType
	}
	return batchSize(&message, m.Body)
}
