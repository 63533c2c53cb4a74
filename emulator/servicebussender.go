package emulator

import (
	"bytes"
	"context"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/bus"
)

// maxBatch is how many messages a batch may have, as on Azure.
const maxBatch = 4500

// busSender is a link on which a client sends messages to a queue or topic.
type busSender struct {
	c    *busPeer
	link *amqp.Incoming
	node busNode
	send func([]bus.Message) error
}

func (c *busPeer) openSender(l *amqp.Incoming, n busNode) (func(context.Context) error, error) {
	if err := c.strikeAttach(l.Link, n.node); err != nil {
		return nil, err
	}
	if n.subscription != "" || n.dead {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is to receive from, not to send to", n.path)
	}
	s := &busSender{c: c, link: l, node: n}
	if q, ok := c.bus.broker.Queue(n.name); ok {
		s.send = q.Send
	} else if t, ok := c.bus.broker.Topic(n.name); ok {
		s.send = t.Send
	} else {
		return nil, c.noSuch(n.path)
	}
	l.CountWith(c.front.meters.of(n.entity))
	return s.run, nil
}

func (s *busSender) run(ctx context.Context) error {
	for {
		ds, err := s.link.Next(ctx)
		if err != nil {
			return err
		}
		for i := range ds {
			refused, err := s.take(ctx, ds[i])
			if err != nil {
				return err
			}
			s.link.Settle(ds[i:i+1], refused)
		}
	}
}

// take sends what a delivery holds. It tells why that is refused, if it is; an error ends the link.
func (s *busSender) take(ctx context.Context, d amqp.Delivery) (refused, err error) {
	ms, refused := splitBus(d)
	if refused != nil {
		return refused, nil
	}
	kind, err := s.c.front.faults.strike(ctx, s.link.Link, OnSend, s.node.entity, "")
	switch {
	case kind == FaultServerBusy && err == errServerBusy:
		return err, nil
	case err != nil:
		return nil, err
	}
	refused = s.c.explain(s.node, s.send(ms))
	if kind == FaultLoseAnswer {
		s.link.Cut()
		return nil, errCut
	}
	return refused, nil
}

// splitBus makes messages of a delivery: one, or as many as the batch holds.
func splitBus(d amqp.Delivery) (ms []bus.Message, err error) {
	if d.Format != formatBatch {
		m, err := busMessage(bytes.Clone(d.Payload))
		return []bus.Message{m}, err
	}
	for b := d.Payload; len(b) > 0; {
		sec, rest, err := amqp.NextSection(b)
		if err != nil {
			return nil, err
		}
		b = rest
		if sec.Code != amqp.SectionData {
			continue
		}
		if len(ms) == maxBatch {
			return nil, amqp.Errorf(amqp.CondMessageSize, "a batch may have %d messages", maxBatch)
		}
		m, err := busMessage(bytes.Clone(sec.Data()))
		if err != nil {
			return nil, err
		}
		ms = append(ms, m)
	}
	if len(ms) == 0 {
		return nil, amqp.Errorf(amqp.CondInvalidField, "the batch holds no messages")
	}
	return ms, nil
}
