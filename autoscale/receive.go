package autoscale

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-go/sluice/autoscale/internal/published"
)

const (
	// batchSize is how many messages are received at once, at most.
	batchSize = 32
	// maxDeliveries is how often a message is received before it goes to the
	// dead-letter queue.
	maxDeliveries = 100
	// maxBody is the largest size of a message in bytes.
	maxBody = 64 << 10
	// retryPause is the wait after an error of a queue or a store.
	retryPause = time.Second
)

// batch is a set of messages that a queue has delivered. The part that processes it
// closes done; only then the next batch is received.
type batch struct {
	queue    Queue
	messages []Message
	done     chan struct{}
}

// receive sends what a queue delivers to a channel, one batch at a time, until ctx
// ends.
func receive(ctx context.Context, q Queue, to chan<- batch, clock Clock, log *slog.Logger) {
	for ctx.Err() == nil {
		messages, err := q.Receive(ctx, batchSize)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("receiving from queue failed", "error", err)
			}
			_ = clock.Sleep(ctx, retryPause)
			continue
		}
		a := batch{q, messages, make(chan struct{})}
		select {
		case to <- a:
		case <-ctx.Done():
			return
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return
		}
	}
}

// decodeBatch decodes and checks the messages of a batch. Invalid ones go to the
// dead-letter queue.
func decodeBatch[T any](ctx context.Context, a batch, log *slog.Logger, check func(T) error) (values []T, of []*Message) {
	for i := range a.messages {
		m := &a.messages[i]
		var v T
		err := decode(m, &v)
		if err == nil {
			err = check(v)
		}
		if err == nil {
			values, of = append(values, v), append(of, m)
			continue
		}
		log.Error("invalid message moved to the dead-letter queue", "id", m.ID, "error", err)
		if err := a.queue.DeadLetter(ctx, m, oneLine(err)); err != nil && ctx.Err() == nil {
			log.Warn("moving message to the dead-letter queue failed, it will be delivered again", "id", m.ID, "error", err)
		}
	}
	return values, of
}

// otherResource: a message for another resource is in the queue of this one.
func otherResource(got, own string) error {
	return fmt.Errorf("%w: it is for the resource %q, not %q: give each resource queues of its own", errBadMessage, got, own)
}

func decode(m *Message, to any) error {
	switch {
	case len(m.Body) > maxBody:
		return fmt.Errorf("%w: %d bytes, more than %d", errBadMessage, len(m.Body), maxBody)
	case m.Deliveries > maxDeliveries:
		return fmt.Errorf("delivered %d times without being processed", m.Deliveries)
	}
	var err error
	if other, ok := to.(interface{ readPublished(*Message) error }); ok && published.Is(m.Body) {
		err = other.readPublished(m)
	} else {
		err = json.Unmarshal(m.Body, to)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", errBadMessage, err)
	}
	return nil
}

// readPublished reads a metric of the published autoscaler.
func (p *Point) readPublished(m *Message) error {
	other, err := published.ReadMetric(m.Body)
	if err == nil {
		*p = Point{Resource: other.ResourceName, Metric: other.Name, Time: other.Value.Time.Time, Value: other.Value.Value}
	}
	return err
}

// readPublished reads an action of the published autoscaler, which has no number: the scaler gives
// it one when it carries it out.
func (a *Action) readPublished(m *Message) error {
	other, err := published.ReadAction(m.Body)
	if err == nil {
		*a = Action{Resource: other.ResourceName, Reason: "sent by the published autoscaler", step: other.Step, message: m.ID}
	}
	return err
}

// deleteAll deletes processed messages. One that cannot be deleted is delivered
// again, which does no harm.
func deleteAll(ctx context.Context, q Queue, messages []*Message, log *slog.Logger) {
	for _, m := range messages {
		if err := q.Delete(ctx, m); err != nil && ctx.Err() == nil {
			log.Warn("deleting message failed, it will be delivered again", "id", m.ID, "error", err)
		}
	}
}
