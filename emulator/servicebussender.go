package emulator

import (
	"bytes"
	"context"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// maxBatch is the maximum number of messages in a batch, as on Azure.
const maxBatch = 4500

// propMaxBatch is the property of a link for sending that states the size of the largest
// batch in bytes. A single message may be larger on the premium tier.
const propMaxBatch = "com.microsoft:max-message-batch-size"

// busSender is a link on which a client sends messages to a queue or topic. Deliveries
// that arrive together are written together.
type busSender struct {
	c      *busPeer
	link   *amqp.Incoming
	node   busNode
	target target

	submissions []submission
	dropAck     bool // a fault: the deliveries aren't acknowledged
}

// submission is a delivery that isn't acknowledged yet.
type submission struct {
	rejected error
	receipt  servicebus.Receipt
}

func (c *busPeer) openSender(l *amqp.Incoming, n busNode) (func(context.Context) error, error) {
	if _, err := c.inject(context.Background(), l.Link, OnAttach, n.entity); err != nil {
		return nil, err
	}
	to, err := c.target(n)
	if err != nil {
		return nil, err
	}
	l.Answer(amqp.Map{{Key: amqp.Symbol(propMaxBatch), Value: uint64(c.bus.azure.maxBatch())}})
	l.CountWith(c.namespace.meters.meter(n.entity))
	s := &busSender{c: c, link: l, node: n, target: to}
	return s.run, nil
}

func (s *busSender) run(ctx context.Context) error {
	for {
		ds, err := s.link.Next(ctx)
		if err != nil {
			return err
		}
		for i := range ds {
			var b submission
			if b, err = s.submit(ctx, ds[i]); err != nil {
				break
			}
			s.submissions = append(s.submissions, b)
		}
		s.finish(ds[:len(s.submissions)])
		if s.dropAck {
			return errDropped
		}
		if err != nil {
			return err
		}
	}
}

// submit submits the messages of a delivery to the broker, unless it rejects it. An
// error ends the link.
func (s *busSender) submit(ctx context.Context, d amqp.Delivery) (submission, error) {
	ms, refused := splitBus(d)
	if size, most := len(d.Payload), s.c.bus.azure.maxBatch(); d.Format == formatBatch && size > most {
		refused = amqp.Errorf(amqp.CondMessageSize, "The batch has %d bytes: at most %d are allowed.", size, most)
	}
	for i := 0; i < len(ms) && refused == nil; i++ {
		refused = s.c.bus.azure.checkMessage(ms[i].Payload)
	}
	if refused != nil {
		return submission{rejected: refused}, nil
	}
	switch kind, err := s.c.inject(ctx, s.link.Link, OnSend, s.node.entity); {
	case kind == FaultServerBusy && err == errServerBusy:
		return submission{rejected: err}, nil
	case err != nil:
		return submission{}, err
	case kind == FaultLoseAnswer:
		s.dropAck = true
	}
	_, receipt := s.target.Submit(ms)
	return submission{receipt: receipt}, nil
}

// finish waits for the disk, and settles the deliveries.
func (s *busSender) finish(ds []amqp.Delivery) {
	for i := range s.submissions {
		if b := &s.submissions[i]; b.rejected == nil {
			b.rejected = s.c.explain(s.node, b.receipt.Wait())
		}
	}
	if s.dropAck {
		s.link.DropConnection()
	}
	for i := 0; i < len(ds); {
		first := i
		for i++; i < len(ds) && s.submissions[i].rejected == nil && s.submissions[first].rejected == nil; i++ {
		}
		s.link.Settle(ds[first:i], s.submissions[first].rejected)
	}
	clear(s.submissions)
	s.submissions = s.submissions[:0]
}

// splitBus returns the messages of a delivery: one, or those of a batch.
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
			return nil, amqp.Errorf(amqp.CondMessageSize, "the batch has more than %d messages", maxBatch)
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
