package eventhub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// Describe implements [driver.Source]. The incarnation is the hub's creation
// time at the broker.
func (s *Source) Describe(ctx context.Context) (driver.Topic, error) {
	p, err := request(ctx, &s.management, "", func(ctx context.Context, c *azeventhubs.ProducerClient) (azeventhubs.EventHubProperties, error) {
		return c.GetEventHubProperties(ctx, nil)
	})
	if err != nil {
		return driver.Topic{}, s.explain("hub "+s.hub, err)
	}
	return driver.Topic{
		Group:       s.Group(),
		Incarnation: p.CreatedOn.UTC().Format(time.RFC3339Nano),
		Partitions:  p.PartitionIDs,
		AnyCase:     true,
	}, nil
}

// boundsPerSecond is how often the consumers of a group together ask for bounds: a namespace
// answers 50 requests a second for all groups of all its hubs. Describe, a seek and a dashboard ask
// too.
const boundsPerSecond = 7

// BoundsPerSecond implements [driver.BoundsBudget].
func (s *Source) BoundsPerSecond() float64 { return boundsPerSecond }

// Bounds implements [driver.Source]. It is one request to the broker.
func (s *Source) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	p, err := request(ctx, &s.management, partition, func(ctx context.Context, c *azeventhubs.ProducerClient) (azeventhubs.PartitionProperties, error) {
		return c.GetPartitionProperties(ctx, partition, nil)
	})
	if err != nil {
		return driver.Bounds{}, s.explain(s.partitionName(partition), err)
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
	// Brokers differ in what they report as the beginning of an empty partition, and are
	// inexact about that of others.
	b.First = max(b.First, 0)
	if p.IsEmpty {
		b.First = b.Last.Sequence + 1
	} else if b.Last.Sequence >= 0 {
		b.First = min(b.First, b.Last.Sequence)
	}
	return b, nil
}

var errClosed = errors.New("the source is closed")

// management keeps the client for management requests. The client is created when
// it is first needed, and dropped when it fails: the SDK's own recovery of that
// link covers requests about the hub, but not those about a partition.
type management struct {
	connect func() (*azeventhubs.ProducerClient, error)
	timeout time.Duration
	pace    *pace
	waiting waiting

	mu     sync.Mutex
	client *managementClient
	closed bool
	work   sync.WaitGroup // goroutines of requests in flight
}

// managementClient is a client for management requests.
type managementClient struct {
	*azeventhubs.ProducerClient
	proven bool // a request has succeeded; guarded by management.mu
}

// request returns the broker's answer about a partition, or about the hub if it is empty. It
// waits for its turn; callers that ask the same until then share the answer.
func request[T any](ctx context.Context, m *management, partition string, ask func(context.Context, *azeventhubs.ProducerClient) (T, error)) (T, error) {
	for {
		c, first := m.waiting.join(partition)
		if first {
			value, err := paced(ctx, m, func() { m.waiting.sent(partition, c) }, ask)
			c.value, c.err = value, err
			close(c.done)
			return value, err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
		if !cancelled(c.err) { // by the end of the other caller's context
			value, _ := c.value.(T)
			return value, c.err
		}
	}
}

// paced sends a request in its turn. If the broker refuses it as one too many, it is sent
// again, for the timeout of a request.
func paced[T any](ctx context.Context, m *management, sent func(), ask func(context.Context, *azeventhubs.ProducerClient) (T, error)) (T, error) {
	var none T
	defer sent()
	for until := time.Now().Add(m.timeout); ; {
		if err := m.pace.wait(ctx); err != nil {
			return none, err
		}
		sent()
		value, err := repeated(ctx, m, ask)
		if !throttled(err) || time.Now().After(until) {
			return value, err
		}
		m.pace.refused(time.Now())
	}
}

// repeated sends a request to the broker. If it fails on a link that has worked
// before, it is sent once more over a new link: the old one may have been lost
// since.
func repeated[T any](ctx context.Context, m *management, ask func(context.Context, *azeventhubs.ProducerClient) (T, error)) (T, error) {
	for {
		value, proven, err := requestOnce(ctx, m, ask)
		if err == nil || !proven || answered(err) || ctx.Err() != nil {
			return value, err
		}
	}
}

// throttled reports whether the broker has refused a request as one too many.
func throttled(err error) bool {
	var answer interface{ RPCCode() int }
	if !errors.As(err, &answer) {
		return false
	}
	return answer.RPCCode() == http.StatusServiceUnavailable || answer.RPCCode() == http.StatusTooManyRequests
}

// answered reports whether an error is a response of the broker.
func answered(err error) bool {
	var answer interface{ RPCCode() int }
	return errors.As(err, &answer)
}

// requestOnce also reports whether the link that failed had worked before.
//
// The SDK waits for some responses without regard to the context. So the request
// runs in a goroutine of its own: a caller whose context ends does not wait, and an
// overdue response ends with its link. A link that has worked and gives no answer
// before the caller's deadline may be silent: it is dropped, which fails other requests
// over it, and these are sent once more.
func requestOnce[T any](ctx context.Context, m *management, ask func(context.Context, *azeventhubs.ProducerClient) (T, error)) (value T, proven bool, err error) {
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
	// Without the caller's deadline: this request may be the first to open the
	// link, and others wait for it.
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	replies := make(chan reply, 1)
	go func() {
		defer m.work.Done()
		defer cancel()
		value, err := ask(bound, client.ProducerClient)
		switch {
		case err == nil || answered(err):
			m.markProven(client)
			replies <- reply{value: value, err: err}
		case bound.Err() == nil:
			replies <- reply{proven: m.drop(client), err: err}
			closeClient(client)
		}
	}()
	late, silent := make(chan struct{}), make(chan struct{})
	go func() {
		defer m.work.Done()
		select {
		case <-bound.Done():
			if !errors.Is(bound.Err(), context.DeadlineExceeded) {
				return
			}
		case <-silent:
		}
		m.drop(client)
		close(late)
		closeClient(client)
	}()
	select {
	case r := <-replies:
		return r.value, r.proven, r.err
	case <-late:
		return none, false, fmt.Errorf("no answer within %v", m.timeout)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && m.isProven(client) {
			close(silent)
		}
		return none, false, ctx.Err()
	}
}

// begin returns the client for a request, and counts the request's goroutines as
// in flight.
func (m *management) begin(goroutines int) (*managementClient, error) {
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
		m.client = &managementClient{ProducerClient: client}
	}
	m.work.Add(goroutines)
	return m.client, nil
}

// markProven records that a client works.
func (m *management) markProven(client *managementClient) {
	m.mu.Lock()
	defer m.mu.Unlock()
	client.proven = true
}

// isProven reports whether a client has worked.
func (m *management) isProven(client *managementClient) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return client.proven
}

// drop makes the next request open a new link. It reports whether this one had
// worked before.
func (m *management) drop(client *managementClient) (proven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == client {
		m.client = nil
	}
	return client.proven && !m.closed
}

// closeClient closes a client without waiting for the broker.
func closeClient(client *managementClient) {
	_ = client.Close(endedContext) // nothing can be done if it fails
}

// close closes the link and ends the requests in flight.
func (m *management) close() {
	m.mu.Lock()
	client := m.client
	m.client, m.closed = nil, true
	m.mu.Unlock()
	if client != nil {
		closeClient(client)
	}
	m.work.Wait()
}
