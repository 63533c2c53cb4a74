package emulator

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

const (
	sessionFilter   = "com.microsoft:session-filter"
	propTimeout     = "com.microsoft:timeout"
	propLockedUntil = "com.microsoft:locked-until-utc"

	// maxSessionWait is how long a client waits for the next session, unless it sets a
	// shorter time.
	maxSessionWait = time.Minute
	// ticksAtEpoch is January 1, 1970 in .NET's ticks of 100 ns.
	ticksAtEpoch = 621355968000000000
)

// sessionRequest is the session that a receiver's filter requests; a nil id is the next
// available one. Some clients send a described value, others a plain one; the response
// has the same form.
type sessionRequest struct {
	id         *string
	described  bool
	descriptor any
}

// requestedSession returns the session that a receiver's filter requests; ok is false if it
// requests none.
func requestedSession(filter amqp.Map) (w sessionRequest, ok bool) {
	for _, p := range filter {
		if p.Key != any(amqp.Symbol(sessionFilter)) && p.Key != any(sessionFilter) {
			continue
		}
		v := p.Value
		if d, described := v.(amqp.Described); described {
			w.described, w.descriptor, v = true, d.Descriptor, d.Value
		}
		if text, isText := v.(string); isText {
			w.id = &text
		}
		return w, true
	}
	return w, false
}

// answer returns the filter with the id of the session that was accepted.
func (w *sessionRequest) answer(id string) amqp.Map {
	value := any(id)
	if w.described {
		value = amqp.Described{Descriptor: w.descriptor, Value: id}
	}
	return amqp.Map{{Key: amqp.Symbol(sessionFilter), Value: value}}
}

// sessionWait returns how long the client waits for a session.
func sessionWait(properties amqp.Map) time.Duration {
	if ms, ok := integer(properties.Get(propTimeout)); ok && ms > 0 && ms < maxSessionWait.Milliseconds() {
		return time.Duration(ms) * time.Millisecond
	}
	return maxSessionWait
}

// openSession opens a link for one session. The attach is answered once the session is
// locked.
func (r *busReceiver) openSession(w sessionRequest, wait time.Duration) (func(context.Context) error, error) {
	if !r.store.InSessions() {
		return nil, r.c.explain(r.node, servicebus.ErrNoSessions)
	}
	r.link.DeferAttach()
	return func(ctx context.Context) error { return r.c.explain(r.node, r.runSession(ctx, w, wait)) }, nil
}

func (r *busReceiver) runSession(ctx context.Context, w sessionRequest, wait time.Duration) error {
	held, err := r.accept(ctx, w.id, wait)
	if err != nil {
		return err
	}
	defer held.Release()
	properties := amqp.Map{{Key: amqp.Symbol(propLockedUntil), Value: ticksAtEpoch + held.LockedUntil().UnixMilli()*10_000}}
	if err := r.link.CompleteAttach(w.answer(held.ID()), properties); err != nil {
		return err
	}
	r.origin = held
	ctx, cancel := context.WithCancel(ctx)
	lost := make(chan error, 1)
	go func() {
		lost <- held.WaitLost(ctx)
		cancel()
	}()
	err = r.run(ctx)
	cancel()
	if watched := <-lost; errors.Is(watched, servicebus.ErrSessionLost) {
		return watched
	}
	return err
}

// accept locks a session by id, or waits for the next available one.
func (r *busReceiver) accept(ctx context.Context, id *string, wait time.Duration) (*servicebus.Session, error) {
	if id != nil {
		return r.store.AcceptSession(*id)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	held, err := r.store.AcceptNext(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, amqp.Errorf(condTimeout, "The operation did not complete within the allotted timeout of %s: no session is available.", wait)
	}
	return held, err
}
