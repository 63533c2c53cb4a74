package emulator

import (
	"context"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/bus"
)

const (
	// receiveMessages and receiveBytes bound what is locked for a receiver at once.
	receiveMessages = 1000
	receiveBytes    = 512 << 10

	sessionFilter = "com.microsoft:session-filter"
)

// busReceiver is a link on which a client receives messages: locked until it settles them, or deleted as they are sent.
type busReceiver struct {
	c     *busPeer
	link  *amqp.Outgoing
	node  busNode
	store *bus.Store
}

func (c *busPeer) openReceiver(l *amqp.Outgoing, n busNode) (func(context.Context) error, error) {
	if err := c.strikeAttach(l.Link, n.node); err != nil {
		return nil, err
	}
	if _, ok := c.bus.broker.Topic(n.name); ok && n.subscription == "" {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is a topic: receive from one of its subscriptions", n.path)
	}
	store, err := c.store(n)
	if err != nil {
		return nil, err
	}
	if l.Filter().Get(sessionFilter) != nil {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "A sessionful message receiver cannot be created on an entity that does not require sessions.")
	}
	r := &busReceiver{c: c, link: l, node: n, store: store}
	l.OnSettle(r.settle)
	return func(ctx context.Context) error { return c.explain(n, r.run(ctx)) }, nil
}

func (r *busReceiver) run(ctx context.Context) error {
	for {
		credit, err := r.link.Ready(ctx)
		if err != nil {
			return err
		}
		got, err := r.store.Receive(min(credit, receiveMessages), receiveBytes)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			r.link.Idle()
			if err := r.store.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err := r.deliver(ctx, got); err != nil {
			return err
		}
	}
}

// deliver sends messages. Those that it can't send are given back.
func (r *busReceiver) deliver(ctx context.Context, got []bus.Locked) error {
	defer func() {
		for _, m := range got {
			_ = r.store.Release(m.Token) // unless the lock has expired meanwhile
		}
	}()
	if _, err := r.c.front.faults.strike(ctx, r.link.Link, OnReceive, r.node.entity, ""); err != nil {
		return err
	}
	for {
		n, err := r.send(got)
		got = got[n:]
		if err != nil || len(got) == 0 {
			return err
		}
		if _, err := r.link.Ready(ctx); err != nil {
			return err
		}
	}
}

func (r *busReceiver) send(got []bus.Locked) (n int, err error) {
	if !r.link.PreSettled() {
		return r.link.SendTagged(len(got), 0,
			func(i int) [16]byte { return guid(got[i].Token) },
			func(b []byte, i int) []byte { return appendBusMessage(b, &got[i].Message, got[i].Until) })
	}
	n, err = r.link.Send(len(got), 0, func(b []byte, i int) []byte { return appendBusMessage(b, &got[i].Message, got[i].Until) })
	for _, m := range got[:n] {
		_ = r.store.Complete(m.Token) // it is on its way, whatever became of the lock
	}
	return n, err
}

// settle does what a receiver says is to become of a message.
func (r *busReceiver) settle(tag [16]byte, o amqp.Outcome) error {
	t := guid(tag)
	var err error
	switch o.Kind {
	case amqp.Accepted:
		err = r.store.Complete(t)
	case amqp.Rejected:
		err = r.store.DeadLetter(t, o.Info.String(propReason), o.Info.String(propDescription), change(without(o.Info, propReason, propDescription)))
	case amqp.Released:
		err = r.store.Release(t)
	case amqp.Modified:
		if o.Undeliverable {
			return notHere("Deferred messages")
		}
		err = r.store.Abandon(t, change(o.Annotations))
	}
	return r.c.explain(r.node, err)
}

// guid turns a lock token into the tag of its message, and back: its first three numbers are little-endian there, as in .NET's GUIDs.
func guid(b [16]byte) [16]byte {
	b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	b[4], b[5], b[6], b[7] = b[5], b[4], b[7], b[6]
	return b
}
