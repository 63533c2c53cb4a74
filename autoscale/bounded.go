package autoscale

import (
	"context"
	"fmt"
	"time"
)

// callTimeout bounds a call of a store or a queue, so that a request that is never
// answered becomes an error, which is logged and retried. [Queue.Receive] is not
// bounded: it waits for messages.
const callTimeout = time.Minute

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callTimeout, errUnanswered)
}

var errUnanswered error = timeoutError(fmt.Sprintf("no answer within %v", callTimeout))

// timeoutError is the error of a call that has ended because of its bound. Its method
// Timeout is that of [net.Error].
type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (e timeoutError) Timeout() bool { return true }

// unanswered replaces the error of a call that has ended because of its bound.
func unanswered(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errUnanswered {
		return errUnanswered
	}
	return err
}

// boundedStore is a store whose calls are bounded.
type boundedStore struct{ Store }

func (s boundedStore) Load(ctx context.Context, resource string) (*ResourceState, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m, err := s.Store.Load(ctx, resource)
	return m, unanswered(ctx, err)
}

func (s boundedStore) Save(ctx context.Context, m *ResourceState, records ...Record) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, s.Store.Save(ctx, m, records...))
}

func (s boundedStore) Outcome(ctx context.Context, resource string) (*Outcome, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o, err := s.Store.Outcome(ctx, resource)
	return o, unanswered(ctx, err)
}

func (s boundedStore) SetOutcome(ctx context.Context, resource string, o Outcome) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, s.Store.SetOutcome(ctx, resource, o))
}

func (s boundedStore) DeleteRecords(ctx context.Context, resource string, before time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, s.Store.DeleteRecords(ctx, resource, before))
}

func (s boundedStore) TakeLease(ctx context.Context, resource string, l Lease) (*Lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	held, err := s.Store.TakeLease(ctx, resource, l)
	return held, unanswered(ctx, err)
}

func (s boundedStore) ReleaseLease(ctx context.Context, resource, owner string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, s.Store.ReleaseLease(ctx, resource, owner))
}

// boundedQueue is a queue whose calls have a time limit, except Receive.
type boundedQueue struct{ Queue }

func (q boundedQueue) Send(ctx context.Context, bodies ...[]byte) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, q.Queue.Send(ctx, bodies...))
}

func (q boundedQueue) Extend(ctx context.Context, m *Message) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, q.Queue.Extend(ctx, m))
}

func (q boundedQueue) Delete(ctx context.Context, m *Message) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, q.Queue.Delete(ctx, m))
}

func (q boundedQueue) DeadLetter(ctx context.Context, m *Message, reason string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return unanswered(ctx, q.Queue.DeadLetter(ctx, m, reason))
}

func (q Queues) bounded() Queues {
	return Queues{boundedQueue{q.Metrics}, boundedQueue{q.Actions}, boundedQueue{q.Reports}}
}
