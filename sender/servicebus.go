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

// ServiceBusConfig holds optional settings. The zero value is ready to use.
type ServiceBusConfig struct {
	// Writers is how many batches may be in flight: sessions and keys are
	// distributed over as many writers, each with one batch in flight at a time.
	// Default: 4.
	Writers int
	// MaxBytes is how large a batch may be. Default: what the link negotiates,
	// 256 KiB in Azure's standard tier and 1 MiB in the premium tier. Then a message
	// that fits into no batch is sent alone, because the premium tier can take single
	// messages of up to 100 MB.
	MaxBytes int
	// MaxMessages is how many messages a batch may have. Default: 4,500, what
	// the basic and standard tiers take; premium takes more.
	MaxMessages int
	// Partitioned must be set if the queue or topic is partitioned: a batch then
	// has messages of one session or key only, because the service refuses others,
	// and ends where the next message has another. If the queue or topic detects
	// duplicates too, the service requires MaxMessages to be 1. Default: messages
	// of all sessions share batches.
	Partitioned bool
	// Client is the options of the client library. Its RetryOptions are ignored:
	// a [Sender] retries, and reports it.
	Client azservicebus.ClientOptions
}

// ServiceBus is a [Transport] to a queue or topic of Service Bus. It is safe for
// concurrent use. A sender can't choose a partition of Service Bus, so the
// writers ([ServiceBusConfig.Writers]) take the place of the partitions.
//
// If the service detaches the link during a send, the client library sends the
// batch once more without reporting it. If the batch had been stored without an
// answer, it is then stored twice and missing from
// [Report.PossibleDuplicates], unless the queue or topic detects duplicates.
type ServiceBus struct {
	cfg     ServiceBusConfig
	writers []string // the names of the writers
	dial    func() (*serviceBusLink, error)

	idleLimit time.Duration

	mu     sync.Mutex
	link   *serviceBusLink // nil: the next use opens one
	closed bool
}

// OpenServiceBus makes a transport from a connection string. entity is the name
// of a queue or topic, and may be empty if the string has it in EntityPath.
// OpenServiceBus doesn't connect yet.
func OpenServiceBus(connectionString, entity string, cfg *ServiceBusConfig) (*ServiceBus, error) {
	if entity == "" {
		// The string has the same form for both services.
		if named, err := azeventhubs.ParseConnectionString(connectionString); err == nil && named.EntityPath != nil {
			entity = *named.EntityPath
		}
	}
	return newServiceBus(entity, cfg, func(o *azservicebus.ClientOptions) (*azservicebus.Client, error) {
		return azservicebus.NewClientFromConnectionString(connectionString, o)
	})
}

// OpenServiceBusWithCredential makes a transport that signs in with Entra ID. The
// namespace is a host name, like contoso.servicebus.windows.net.
// OpenServiceBusWithCredential doesn't connect yet.
func OpenServiceBusWithCredential(namespace, entity string, credential azcore.TokenCredential, cfg *ServiceBusConfig) (*ServiceBus, error) {
	return newServiceBus(entity, cfg, func(o *azservicebus.ClientOptions) (*azservicebus.Client, error) {
		return azservicebus.NewClient(namespace, credential, o)
	})
}

func newServiceBus(entity string, cfg *ServiceBusConfig, open func(*azservicebus.ClientOptions) (*azservicebus.Client, error)) (*ServiceBus, error) {
	b := &ServiceBus{idleLimit: idleLimit}
	if cfg != nil {
		b.cfg = *cfg
	}
	c := &b.cfg
	c.Writers, c.MaxMessages = cmp.Or(c.Writers, 4), cmp.Or(c.MaxMessages, 4500)
	switch {
	case entity == "":
		return nil, errors.New("service bus: the name of the queue or topic is missing: give it as entity, or as EntityPath in the connection string")
	case c.Writers < 0 || c.MaxMessages < 0 || c.MaxBytes < 0:
		return nil, fmt.Errorf("service bus: Writers %d, MaxMessages %d and MaxBytes %d must not be negative", c.Writers, c.MaxMessages, c.MaxBytes)
	}
	for i := range c.Writers {
		b.writers = append(b.writers, strconv.Itoa(i))
	}
	c.Client.RetryOptions = azservicebus.RetryOptions{MaxRetries: -1}
	b.dial = func() (*serviceBusLink, error) {
		client, err := open(&c.Client)
		if err != nil {
			return nil, fmt.Errorf("service bus client: %w", err)
		}
		sender, err := client.NewSender(entity, nil)
		if err != nil {
			return nil, fmt.Errorf("service bus sender: %w", err)
		}
		return &serviceBusLink{client: client, sender: sender}, nil
	}
	var err error
	b.link, err = b.dial()
	return b, err
}

// Close closes the link and the connection. No SendAll or [Sink] may use the
// transport any more.
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

// serviceBusLink is a link with a connection of its own. The client library's retries
// are off, because they would send batches again without reporting it. Without
// them the library never replaces a lost connection, so ServiceBus replaces link
// and connection together.
type serviceBusLink struct {
	client *azservicebus.Client
	sender *azservicebus.Sender

	// The transport's mu guards the fields below.
	users int
	used  time.Time // when the last use ended
}

// idleLimit is how long a link may be unused before it is replaced instead of used
// again. The service detaches idle links, then closes their connections, and a batch
// that is sent on one of these seems to be lost: Service Bus detaches after 10 minutes,
// Event Hubs after 30.
const idleLimit = 9 * time.Minute

// use returns the link, and opens one if there is none or it was idle.
// [ServiceBus.release] must follow.
func (b *ServiceBus) use() (*serviceBusLink, error) {
	b.mu.Lock()
	if idle := b.link; idle != nil && idle.users == 0 && !idle.used.IsZero() && time.Since(idle.used) > b.idleLimit {
		b.link = nil
		defer idle.close() // once mu is unlocked
	}
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, fmt.Errorf("service bus: the transport is closed: %w", ErrPermanent)
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

// closeTimeout bounds the closing of a link that has failed.
const closeTimeout = 2 * time.Second

// release ends a use of the link. err is the error of that use: if it says that
// the link is lost, the next use opens another. The last user of a lost link
// closes it, because other users may still get answers on it.
func (b *ServiceBus) release(l *serviceBusLink, err error) {
	b.mu.Lock()
	if err != nil && outcomeOf(err) == OutcomeUnknown && b.link == l {
		b.link = nil
	}
	l.users--
	l.used = time.Now()
	unused := l.users == 0 && b.link != l
	b.mu.Unlock()
	if unused {
		l.close()
	}
}

// close closes a link that has failed or was idle, and its connection.
func (l *serviceBusLink) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = l.client.Close(ctx)
}

// Partitions implements [Transport]: it returns the writers.
func (b *ServiceBus) Partitions(context.Context) ([]string, error) { return b.writers, nil }

// MixesPartitions implements [PartitionMixer].
func (b *ServiceBus) MixesPartitions() bool { return true }

// MaxBatchBytes returns how large a batch may be, in bytes. It connects.
func (b *ServiceBus) MaxBatchBytes(ctx context.Context) (int, error) {
	return maxBatchBytes(ctx, func() (Batch, error) {
		batch, err := b.newBatch(ctx)
		if err != nil {
			return nil, err
		}
		batch.single = false
		return batch, nil
	})
}

// NewBatch implements [Transport].
func (b *ServiceBus) NewBatch(ctx context.Context, _ string) (Batch, error) {
	batch, err := b.newBatch(ctx)
	if err != nil {
		return nil, err
	}
	return batch, nil
}

func (b *ServiceBus) newBatch(ctx context.Context) (*serviceBusBatch, error) {
	l, err := b.use()
	if err != nil {
		return nil, err
	}
	batch, err := l.batch(ctx, b.cfg.MaxBytes)
	b.release(l, err)
	if err != nil {
		return nil, explainServiceBus(err)
	}
	return &serviceBusBatch{cfg: &b.cfg, batch: batch, single: b.cfg.MaxBytes == 0}, nil
}

func (l *serviceBusLink) batch(ctx context.Context, maxBytes int) (*azservicebus.MessageBatch, error) {
	return l.sender.NewMessageBatch(ctx, &azservicebus.MessageBatchOptions{MaxBytes: uint64(maxBytes)})
}

// Send implements [Transport].
func (b *ServiceBus) Send(ctx context.Context, batch Batch) (outcome Outcome, err error) {
	l, err := b.use()
	if err != nil {
		return OutcomeDenied, err
	}
	defer func() { b.release(l, err) }()
	// If the link can't be opened, nothing was sent.
	if _, err = l.batch(ctx, 0); err != nil {
		err = explainServiceBus(err)
		if errors.Is(err, ErrPermanent) {
			return OutcomeDenied, err
		}
		return OutcomeBusy, err
	}
	sent := batch.(*serviceBusBatch)
	if sent.alone > 0 {
		err = l.sender.SendAMQPAnnotatedMessage(ctx, &sent.message, nil)
	} else {
		err = l.sender.SendMessageBatch(ctx, sent.batch, nil)
	}
	switch {
	case err == nil:
		return OutcomeAccepted, nil
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return OutcomeTooLarge, err
	}
	return outcomeOf(err), explainServiceBus(err)
}

// explainServiceBus marks an error that a retry doesn't cure. The library's own error
// type doesn't wrap the AMQP error that it was made of, so its code is checked
// too.
func explainServiceBus(err error) error {
	var own *azservicebus.Error
	if isPermanent(err) || errors.As(err, &own) && (own.Code == azservicebus.CodeUnauthorizedAccess || own.Code == azservicebus.CodeNotFound) {
		return fmt.Errorf("%w: %w", err, ErrPermanent)
	}
	return err
}

// The service's documented quotas for what a message has beside its body.
const (
	maxID         = 128      // characters of the id of a message or session
	maxProperty   = 32 << 10 // bytes of one property
	maxProperties = 64 << 10 // bytes of all properties
)

// serviceBusBatch reuses the memory around the parts of a message, because the library
// encodes each message at once. Only the batch's first message has that memory to
// itself: the library keeps it for the batch's envelope.
type serviceBusBatch struct {
	cfg         *ServiceBusConfig
	batch       *azservicebus.MessageBatch
	message     azservicebus.AMQPAnnotatedMessage
	properties  azservicebus.AMQPAnnotatedMessageProperties
	annotations map[any]any
	key         string // of all messages, if ServiceBusConfig.Partitioned
	single      bool   // a message that fits into no batch may be sent alone
	alone       int    // bytes of the only message, if it is sent without a batch; or 0
}

// maxAlone is the size of the largest message that Service Bus takes, in bytes.
const maxAlone = 100 << 20

func (b *serviceBusBatch) Len() int {
	if b.alone > 0 {
		return 1
	}
	return int(b.batch.NumMessages())
}

func (b *serviceBusBatch) Bytes() int {
	if b.alone > 0 {
		return b.alone
	}
	return int(b.batch.NumBytes())
}

func (b *serviceBusBatch) Add(m *Message) error {
	if err := checkServiceBus(m); err != nil {
		return err
	}
	n, key := b.Len(), m.group()
	if b.alone > 0 || n == b.cfg.MaxMessages || b.cfg.Partitioned && n > 0 && key != b.key {
		return ErrTooLarge
	}
	err := b.batch.AddAMQPAnnotatedMessage(b.annotated(m), nil)
	switch {
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		size, unknown := b.Size(m)
		if n > 0 || !b.single || unknown != nil || size > maxAlone {
			return ErrTooLarge
		}
		b.alone = size // the library knows what the link takes, and refuses more
		return nil
	case err == nil:
		b.key = key
	}
	return err
}

// checkServiceBus returns why the service doesn't take a message, if so: it would
// refuse the whole batch.
func checkServiceBus(m *Message) error {
	err := m.checkKafkaOnly()
	switch {
	case err != nil:
		return err
	case m.SessionID != "" && m.Key != "" && m.Key != m.SessionID:
		return errors.New("partition key differs from the session id: leave Key empty")
	case longer(m.SessionID, maxID):
		return fmt.Errorf("session id has more than %d characters", maxID)
	case longer(m.Key, maxKey):
		return fmt.Errorf("partition key has more than %d characters", maxKey)
	case longer(m.MessageID, maxID):
		return fmt.Errorf("message id has more than %d characters", maxID)
	case m.TTL < 0 || m.TTL > MaxTTL || m.TTL > 0 && m.TTL < time.Millisecond:
		return fmt.Errorf("time to live of %v: must be from 1ms to %v", m.TTL, MaxTTL)
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

// annotated makes the AMQP message of a message.
func (b *serviceBusBatch) annotated(m *Message) *azservicebus.AMQPAnnotatedMessage {
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
	if m.Subject != "" {
		b.properties.Subject = &m.Subject
	}
	if m.ReplyTo != "" {
		b.properties.ReplyTo = &m.ReplyTo
	}
	b.message.Header = nil
	if m.TTL != 0 {
		b.message.Header = &azservicebus.AMQPAnnotatedMessageHeader{TTL: m.TTL}
	}
	b.message.MessageAnnotations = nil
	switch {
	case !m.ScheduledFor.IsZero():
		b.message.MessageAnnotations = map[any]any{scheduledAnnotation: m.ScheduledFor.UTC()}
		if m.Key != "" {
			b.message.MessageAnnotations[keyAnnotation] = m.Key
		}
	case m.Key != "":
		if b.annotations == nil {
			b.annotations = make(map[any]any, 1)
		}
		b.annotations[keyAnnotation] = m.Key
		b.message.MessageAnnotations = b.annotations
	}
	if m.SessionID != "" {
		b.properties.GroupID = &m.SessionID
	}
	b.message.Properties, b.message.ApplicationProperties = &b.properties, wireProperties(m.Properties)
	b.message.Body.Data = append(b.message.Body.Data[:0], m.Body)
	return &b.message
}

// Size implements [Sizer].
func (b *serviceBusBatch) Size(m *Message) (int, error) {
	message := amqp.Message{Properties: &amqp.MessageProperties{MessageID: m.MessageID}, Annotations: amqp.Annotations{}, ApplicationProperties: wireProperties(m.Properties)}
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
	if m.Subject != "" {
		message.Properties.Subject = &m.Subject
	}
	if m.ReplyTo != "" {
		message.Properties.ReplyTo = &m.ReplyTo
	}
	if m.TTL != 0 {
		message.Header = &amqp.MessageHeader{TTL: m.TTL}
	}
	if !m.ScheduledFor.IsZero() {
		message.Annotations[scheduledAnnotation] = m.ScheduledFor
	}
	if m.ContentType != "" {
		message.Properties.ContentType = &m.ContentType
	}
	return batchSize(&message, m.Body)
}
