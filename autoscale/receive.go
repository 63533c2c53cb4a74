package autoscale

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

const (
	// batchSize is how many messages are received at once.
	batchSize = 32
	// maxDeliveries is how often a message that can't be dealt with comes again
	// before it is set aside.
	maxDeliveries = 100
	// maxBody bounds a message.
	maxBody = 64 << 10
	// retryPause is how long a queue that fails is left alone.
	retryPause = time.Second
)

// batch is what a queue has delivered. Whoever deals with it closes done.
type batch struct {
	queue    Queue
	messages []Message
	done     chan struct{}
}

// receive hands over what a queue delivers, one batch at a time, until ctx ends.
func receive(ctx context.Context, q Queue, to chan<- batch, clock Clock, log *slog.Logger) {
	for ctx.Err() == nil {
		messages, err := q.Receive(ctx, batchSize)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("queue not read", "error", err)
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

// decodeBatch decodes the messages of an arrival. What is not one is set aside.
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
		log.Error("message set aside", "id", m.ID, "error", err)
		if err := a.queue.DeadLetter(ctx, m, oneLine(err)); err != nil && ctx.Err() == nil {
			log.Warn("message not set aside: it comes again", "id", m.ID, "error", err)
		}
	}
	return values, of
}

func decode(m *Message, to any) error {
	switch {
	case len(m.Body) > maxBody:
		return fmt.Errorf("%w: %d bytes, more than %d", errBadMessage, len(m.Body), maxBody)
	case m.Deliveries > maxDeliveries:
		return fmt.Errorf("delivered %d times without being dealt with", m.Deliveries)
	}
	if err := json.Unmarshal(m.Body, to); err != nil {
		return fmt.Errorf("%w: %v", errBadMessage, err)
	}
	return nil
}

// deleteAll removes messages that have been dealt with. One that can't be
// removed comes again, which does no harm.
func deleteAll(ctx context.Context, q Queue, messages []*Message, log *slog.Logger) {
	for _, m := range messages {
		if err := q.Delete(ctx, m); err != nil && ctx.Err() == nil {
			log.Warn("message not removed: it comes again", "id", m.ID, "error", err)
		}
	}
}
