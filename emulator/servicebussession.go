package emulator

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/servicebus"
)

const (
	sessionFilter   = "com.microsoft:session-filter"
	propPatience    = "com.microsoft:timeout"
	propLockedUntil = "com.microsoft:locked-until-utc"

	// sessionPatience is how long a client waits for the next session, unless it says so.
	sessionPatience = time.Minute
	// ticksAtEpoch is 1970 in .NET's ticks of 100 ns.
	ticksAtEpoch = 621355968000000000
)

// sessionWish is what a receiver's filter says: which session, nil for the next one. Some clients describe the value, others don't; they are
// answered in kind.
type sessionWish struct {
	id         *string
	described  bool
	descriptor any
}

// sessionAsked reads which session a receiver wants; ok is false if it wants none.
func sessionAsked(filter amqp.Map) (w sessionWish, ok bool) {
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

// answer is the filter that is in force.
func (w *sessionWish) answer(id string) amqp.Map {
	value := any(id)
	if w.described {
		value = amqp.Described{Descriptor: w.descriptor, Value: id}
	}
	return amqp.Map{{Key: amqp.Symbol(sessionFilter), Value: value}}
}

// patienceOf is how long the client waits for its link.
func patienceOf(properties amqp.Map) time.Duration {
	if ms, ok := integer(properties.Get(propPatience)); ok && ms > 0 && ms < sessionPatience.Milliseconds() {
		return time.Duration(ms) * time.Millisecond
	}
	return sessionPatience
}

// openSession opens a link for one session. The client is answered when the link has it.
func (r *busReceiver) openSession(w sessionWish, patience time.Duration) (func(context.Context) error, error) {
	if !r.store.InSessions() {
		return nil, r.c.explain(r.node, servicebus.ErrNoSessions)
	}
	r.link.DeferAttach()
	return func(ctx context.Context) error { return r.c.explain(r.node, r.runSession(ctx, w, patience)) }, nil
}

func (r *busReceiver) runSession(ctx context.Context, w sessionWish, patience time.Duration) error {
	held, err := r.accept(ctx, w.id, patience)
	if err != nil {
		return err
	}
	defer held.Release()
	properties := amqp.Map{{Key: amqp.Symbol(propLockedUntil), Value: ticksAtEpoch + held.Until().UnixMilli()*10_000}}
	if err := r.link.CompleteAttach(w.answer(held.ID()), properties); err != nil {
		return err
	}
	r.from = held
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

// accept locks a session, or waits for the next one that has messages.
func (r *busReceiver) accept(ctx context.Context, id *string, patience time.Duration) (*servicebus.Session, error) {
	if id != nil {
		return r.store.AcceptSession(*id)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	held, err := r.store.AcceptNext(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, amqp.Errorf(condTimeout, "The operation did not complete within the allotted timeout of %s: no session is available.", patience)
	}
	return held, err
}
