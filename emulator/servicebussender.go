package emulator

import (
	"bytes"
	"context"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/servicebus"
)

// maxBatch is how many messages a batch may have, as on Azure.
const maxBatch = 4500

// busSender is a link on which a client sends messages to a queue or topic. What has arrived together is written together.
type busSender struct {
	c    *busPeer
	link *amqp.Incoming
	node busNode
	to   target

	begun   []begun
	unheard bool // a fault keeps the client from hearing of what it has sent
}

// begun is a delivery on its way to the disk.
type begun struct {
	refused error
	receipt servicebus.Receipt
}

func (c *busPeer) openSender(l *amqp.Incoming, n busNode) (func(context.Context) error, error) {
	if err := c.strikeAttach(l.Link, n.node); err != nil {
		return nil, err
	}
	to, err := c.target(n)
	if err != nil {
		return nil, err
	}
	l.CountWith(c.front.meters.of(n.entity))
	s := &busSender{c: c, link: l, node: n, to: to}
	return s.run, nil
}

func (s *busSender) run(ctx context.Context) error {
	for {
		ds, err := s.link.Next(ctx)
		if err != nil {
			return err
		}
		for i := range ds {
			var b begun
			if b, err = s.begin(ctx, ds[i]); err != nil {
				break
			}
			s.begun = append(s.begun, b)
		}
		s.finish(ds[:len(s.begun)])
		if s.unheard {
			return errCut
		}
		if err != nil {
			return err
		}
	}
}

// begin sends what a delivery holds, unless that is refused; an error ends the link.
func (s *busSender) begin(ctx context.Context, d amqp.Delivery) (begun, error) {
	ms, refused := splitBus(d)
	if refused != nil {
		return begun{refused: refused}, nil
	}
	switch kind, err := s.c.front.faults.strike(ctx, s.link.Link, OnSend, s.node.entity, ""); {
	case kind == FaultServerBusy && err == errServerBusy:
		return begun{refused: err}, nil
	case err != nil:
		return begun{}, err
	case kind == FaultLoseAnswer:
		s.unheard = true
	}
	_, receipt := s.to.Submit(ms)
	return begun{receipt: receipt}, nil
}

// finish waits for the disk, and tells the client.
func (s *busSender) finish(ds []amqp.Delivery) {
	for i := range s.begun {
		if b := &s.begun[i]; b.refused == nil {
			b.refused = s.c.explain(s.node, b.receipt.Wait())
		}
	}
	if s.unheard {
		s.link.DropConnection()
	}
	for i := 0; i < len(ds); {
		first := i
		for i++; i < len(ds) && s.begun[i].refused == nil && s.begun[first].refused == nil; i++ {
		}
		s.link.Settle(ds[first:i], s.begun[first].refused)
	}
	clear(s.begun)
	s.begun = s.begun[:0]
}

// splitBus makes messages of a delivery: one, or as many as the batch holds.
func splitBus(d amqp.Delivery) (ms []servicebus.Message, err error) {
	if d.Format != formatBatch {
		m, err := busMessage(bytes.Clone(d.Payload))
		return []servicebus.Message{m}, err
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
