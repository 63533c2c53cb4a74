package eventhub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Describe implements [sluice.Source]. The incarnation is the hub's creation
// time at the broker.
func (s *Source) Describe(ctx context.Context) (driver.Topic, error) {
	p, err := ask(ctx, &s.management, func(ctx context.Context, c *azeventhubs.ProducerClient) (azeventhubs.EventHubProperties, error) {
		return c.GetEventHubProperties(ctx, nil)
	})
	if err != nil {
		return driver.Topic{}, s.explain("hub "+s.hub, err)
	}
	return driver.Topic{
		Group:       s.Group(),
		Incarnation: p.CreatedOn.UTC().Format(time.RFC3339Nano),
		Partitions:  p.PartitionIDs,
	}, nil
}

// Bounds implements [sluice.Source]. It is one question to the broker.
func (s *Source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	p, err := ask(ctx, &s.management, func(ctx context.Context, c *azeventhubs.ProducerClient) (azeventhubs.PartitionProperties, error) {
		return c.GetPartitionProperties(ctx, partition, nil)
	})
	if err != nil {
		return driver.Bounds{}, s.explain(fmt.Sprintf("hub %s, partition %s", s.hub, partition), err)
	}
	b := driver.Bounds{
		First: p.BeginningSequenceNumber,
		Last:  driver.Position{Sequence: p.LastEnqueuedSequenceNumber, Offset: p.LastEnqueuedOffset},
	}
	if p.LastEnqueuedSequenceNumber < 0 {
		b.Last = driver.Origin
	} else {
		b.LastEnqueued = p.LastEnqueuedOn.UTC()
	}
	// What an empty partition says its beginning is differs from broker to broker.
	if p.IsEmpty {
		b.First = b.Last.Sequence + 1
	}
	return b, nil
}

var errClosed = errors.New("the source is closed")

// management keeps the client for questions. It is made when it is first
// needed, and given up when it fails: the SDK's own recovery of that link knows
// the questions about the hub, but not those about a partition.
type management struct {
	connect func() (*azeventhubs.ProducerClient, error)
	timeout time.Duration

	mu     sync.Mutex
	client *asker
	closed bool
	work   sync.WaitGroup // questions under way
}

// asker is a client for questions.
type asker struct {
	*azeventhubs.ProducerClient
	proven bool // has answered before; guarded by the management's lock
}

// ask puts a question to the broker. One that fails over a link that has worked
// before is put once more over a new one: the link may have been lost since.
func ask[T any](ctx context.Context, m *management, question func(context.Context, *azeventhubs.ProducerClient) (T, error)) (T, error) {
	for {
		value, proven, err := askOnce(ctx, m, question)
		if err == nil || !proven || answered(err) || ctx.Err() != nil {
			return value, err
		}
	}
}

// answered tells whether an error is the broker's answer.
func answered(err error) bool {
	var answer interface{ RPCCode() int }
	return errors.As(err, &answer)
}

// askOnce also tells whether the link that failed had worked before.
//
// The SDK waits for some answers whatever the context says, so the question
// runs on its own: a caller who has gone doesn't wait, and an overdue answer
// ends with the link it should have come over.
func askOnce[T any](ctx context.Context, m *management, question func(context.Context, *azeventhubs.ProducerClient) (T, error)) (value T, proven bool, err error) {
	type reply struct {
		value  T
		proven bool
		err    error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, false, err
	}
	client, err := m.begin(2)
	if err != nil {
		return none, false, err
	}
	// Without the caller's deadline: others wait for the link that this
	// question may be the first to open.
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	replies := make(chan reply, 1)
	go func() {
		defer m.work.Done()
		defer cancel()
		value, err := question(bound, client.ProducerClient)
		switch {
		case err == nil || answered(err):
			m.praise(client)
			replies <- reply{value: value, err: err}
		case bound.Err() == nil:
			replies <- reply{proven: m.disown(client), err: err}
			hangUp(client)
		}
	}()
	late := make(chan struct{})
	go func() {
		defer m.work.Done()
		<-bound.Done()
		if errors.Is(bound.Err(), context.DeadlineExceeded) {
			m.disown(client)
			close(late)
			hangUp(client)
		}
	}()
	select {
	case r := <-replies:
		return r.value, r.proven, r.err
	case <-late:
		return none, false, fmt.Errorf("no answer within %v", m.timeout)
	case <-ctx.Done():
		return none, false, ctx.Err()
	}
}

// begin returns the client for a question and counts the question's goroutines
// as under way.
func (m *management) begin(goroutines int) (*asker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if m.client == nil {
		client, err := m.connect()
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		m.client = &asker{ProducerClient: client}
	}
	m.work.Add(goroutines)
	return m.client, nil
}

// praise notes that a client works.
func (m *management) praise(client *asker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	client.proven = true
}

// disown makes the next question open another link, and tells whether this one
// had worked before.
func (m *management) disown(client *asker) (proven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == client {
		m.client = nil
	}
	return client.proven && !m.closed
}

// hangUp closes a client: its connection, without waiting for goodbyes.
func hangUp(client *asker) {
	_ = client.Close(expired) // nothing can be done about one that won't
}

// close ends the link and the questions under way.
func (m *management) close() {
	m.mu.Lock()
	client := m.client
	m.client, m.closed = nil, true
	m.mu.Unlock()
	if client != nil {
		hangUp(client)
	}
	m.work.Wait()
}
