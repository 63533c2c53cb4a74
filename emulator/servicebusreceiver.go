package emulator

import (
	"context"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// receiveMessages and receiveBytes limit what is locked for a receiver at once.
const (
	receiveMessages = 1000
	receiveBytes    = 512 << 10
)

// busReceiver is a link on which a client receives messages: in peek-lock mode they are
// locked until it settles them, in receive-and-delete mode they are deleted before they
// are sent.
type busReceiver struct {
	c      *busPeer
	link   *amqp.Outgoing
	node   busNode
	store  *servicebus.Store
	origin origin
}

// origin is the source of a receiver's messages: a [servicebus.Store] or a
// [servicebus.Session].
type origin interface {
	Receive(n, maxBytes int) ([]servicebus.Locked, error)
	Wait(context.Context) error
}

func (c *busPeer) openReceiver(l *amqp.Outgoing, n busNode) (func(context.Context) error, error) {
	if _, err := c.inject(context.Background(), l.Link, OnAttach, n.entity); err != nil {
		return nil, err
	}
	if _, ok := c.bus.broker.Topic(n.name); ok && n.subscription == "" {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is a topic: receive from one of its subscriptions", n.path)
	}
	store, err := c.store(n)
	if err != nil {
		return nil, err
	}
	leave, err := c.bus.azure.receive(n.name)
	if err != nil {
		return nil, err
	}
	run, err := c.receiveLink(l, n, store)
	if err != nil {
		leave()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer leave()
		return run(ctx)
	}, nil
}

func (c *busPeer) receiveLink(l *amqp.Outgoing, n busNode, store *servicebus.Store) (func(context.Context) error, error) {
	r := &busReceiver{c: c, link: l, node: n, store: store, origin: store}
	l.OnSettle(r.settle)
	if wish, ok := requestedSession(l.Filter()); ok {
		return r.openSession(wish, sessionWait(l.Properties()))
	}
	if store.InSessions() {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver.")
	}
	return func(ctx context.Context) error { return c.explain(n, r.run(ctx)) }, nil
}

func (r *busReceiver) run(ctx context.Context) error {
	for {
		credit, err := r.link.WaitCredit(ctx)
		if err != nil {
			return err
		}
		got, err := r.origin.Receive(min(credit, receiveMessages), receiveBytes)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			r.link.Idle()
			if err := r.origin.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if r.link.PreSettled() {
			err = r.deliverDeleted(ctx, got)
		} else {
			err = r.deliverLocked(ctx, got)
		}
		if err != nil {
			return err
		}
	}
}

// deliverLocked sends locked messages. Those that it can't send are released.
func (r *busReceiver) deliverLocked(ctx context.Context, got []servicebus.Locked) error {
	defer func() {
		for _, m := range got {
			_ = r.store.Release(m.Token) // unless the lock has expired meanwhile
		}
	}()
	if _, err := r.c.inject(ctx, r.link.Link, OnReceive, r.node.entity); err != nil {
		return err
	}
	for {
		n, err := r.link.SendTagged(len(got), 0,
			func(i int) [16]byte { return guid(got[i].Token) },
			func(b []byte, i int) []byte { return appendBusMessage(b, &got[i].Message, &got[i]) })
		got = got[n:]
		if err != nil || len(got) == 0 {
			return err
		}
		if _, err := r.link.WaitCredit(ctx); err != nil {
			return err
		}
	}
}

// deliverDeleted sends messages in receive-and-delete mode. They are deleted before, so
// that none is received twice. Those that a disconnected client doesn't receive are
// lost, as on Azure.
func (r *busReceiver) deliverDeleted(ctx context.Context, got []servicebus.Locked) error {
	if _, err := r.c.inject(ctx, r.link.Link, OnReceive, r.node.entity); err != nil {
		for _, m := range got {
			_ = r.store.Release(m.Token)
		}
		return err
	}
	if err := completeAll(r.store, got); err != nil {
		return err
	}
	for {
		n, err := r.link.Send(len(got), 0, func(b []byte, i int) []byte { return appendBusMessage(b, &got[i].Message, nil) })
		got = got[n:]
		if err != nil || len(got) == 0 {
			return err
		}
		if _, err := r.link.WaitCredit(ctx); err != nil {
			return err
		}
	}
}

func completeAll(store *servicebus.Store, got []servicebus.Locked) (err error) {
	receipts := make([]servicebus.Receipt, len(got))
	for i := range got {
		receipts[i] = store.Settle(got[i].Token, servicebus.Settlement{Outcome: servicebus.Complete})
	}
	for _, r := range receipts {
		if failed := r.Wait(); failed != nil && err == nil {
			err = failed
		}
	}
	return err
}

// settle settles a message with the outcome that the receiver sent.
func (r *busReceiver) settle(tag [16]byte, o amqp.Outcome) (wait func() error, err error) {
	var as servicebus.Settlement
	switch o.Kind {
	case amqp.Accepted:
		as.Outcome = servicebus.Complete
	case amqp.Rejected:
		as.Outcome, as.Reason, as.Description = servicebus.DeadLetter, o.Info.String(propReason), o.Info.String(propDescription)
		as.Edit = editProperties(omit(o.Info, propReason, propDescription), r.c.bus.azure.maxMessage())
	case amqp.Released:
		as.Outcome = servicebus.Release
	case amqp.Modified:
		as.Outcome, as.Edit = servicebus.Abandon, editProperties(o.Annotations, r.c.bus.azure.maxMessage())
		if o.Undeliverable {
			as.Outcome = servicebus.Defer
		}
	}
	receipt := r.store.Settle(guid(tag), as)
	return func() error { return r.c.explain(r.node, receipt.Wait()) }, nil
}

// guid converts a lock token to its delivery tag and back: the first three numbers of
// the tag are little-endian, as in .NET's GUIDs.
func guid(b [16]byte) [16]byte {
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	b[4], b[5], b[6], b[7] = b[5], b[4], b[7], b[6]
	return b
}
