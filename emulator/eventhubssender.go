package emulator

import (
	"context"
	"sync"
	"unicode/utf8"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

const (
	// maxAppend is about how many bytes one append may add to the log.
	maxAppend = 4 << 20
	// logOverhead is how many bytes an event takes in the log in addition to its own;
	// the smallest events are smaller than that.
	logOverhead = 40
	// maxKey is how many characters a partition key may have, as on Azure.
	maxKey = 128
)

// hubSender is a link on which a client sends events, to one partition or to any.
// Deliveries that arrive while an append is being written are appended together: one
// write to disk for many deliveries.
type hubSender struct {
	c    *hubPeer
	link *amqp.Incoming
	node hubNode
	hub  *eventhubs.Hub
	part *eventhubs.Partition // nil: chosen by the event's key, or round robin

	splitter splitter
	events   []eventhubs.Message // of one delivery
	groups   map[*eventhubs.Partition]*group
	active   []*group
	outcomes []error // by delivery since the last append
	dropAck  bool    // a fault: the next append isn't acknowledged
}

// group is the events of one append to one partition.
type group struct {
	part       *eventhubs.Partition
	events     []eventhubs.Message
	bytes      int   // in the log
	deliveries []int // indices of verdicts
	err        error
}

func (c *hubPeer) openSender(l *amqp.Incoming, n hubNode) (func(context.Context) error, error) {
	if err := c.injectAttach(l.Link, n.node); err != nil {
		return nil, err
	}
	h, p, err := c.lookup(n)
	if err != nil {
		return nil, err
	}
	l.CountWith(c.namespace.meters.meter(h.Name()))
	s := &hubSender{c: c, link: l, node: n, hub: h, part: p, groups: make(map[*eventhubs.Partition]*group)}
	return s.run, nil
}

func (s *hubSender) run(ctx context.Context) error {
	for {
		ds, err := s.link.Next(ctx)
		if err != nil {
			return err
		}
		first := 0
		for i := range ds {
			full, verdict, err := s.assign(ctx, ds[i])
			if err != nil {
				return err
			}
			s.outcomes = append(s.outcomes, verdict)
			if full || i == len(ds)-1 {
				if err := s.flush(ds[first : i+1]); err != nil {
					return err
				}
				first = i + 1
			}
		}
	}
}

// assign adds a delivery's events to the group of their partition, all to the same one,
// as Azure does. It returns whether the group is full, and the error with which the
// delivery is rejected. The last error ends the link.
func (s *hubSender) assign(ctx context.Context, d amqp.Delivery) (full bool, refused, err error) {
	if s.events, refused = s.splitter.split(d, s.events[:0]); refused != nil {
		return false, refused, nil
	}
	for i := range s.events {
		if key := s.events[i].Key; len(key) > maxKey && utf8.RuneCountInString(key) > maxKey {
			return false, amqp.Errorf(amqp.CondArgumentOutOfRange, "The partition key '%.20s…' has more than %d characters.", key, maxKey), nil
		}
	}
	p := s.part
	if p == nil {
		key := s.events[0].Key
		if s.c.azure.EnvelopeRouting {
			key = s.splitter.key
		}
		p = s.hub.Pick(key)
	}
	switch kind, err := s.c.inject(ctx, s.link.Link, OnSend, s.hub.Name(), p.ID()); {
	case kind == FaultServerBusy && err == errServerBusy:
		return false, err, nil
	case err != nil:
		return false, nil, err
	case kind == FaultLoseAnswer:
		s.dropAck = true
	}
	g := s.groups[p]
	if g == nil {
		g = &group{part: p}
		s.groups[p] = g
	}
	if len(g.events) == 0 {
		s.active = append(s.active, g)
	}
	g.events = append(g.events, s.events...)
	g.bytes += len(d.Payload) + logOverhead*len(s.events)
	g.deliveries = append(g.deliveries, len(s.outcomes))
	return g.bytes >= maxAppend, nil, nil
}

// flush appends all groups, those of different partitions side by side, and settles the
// deliveries. It returns an error if the hub is gone.
func (s *hubSender) flush(ds []amqp.Delivery) error {
	var wg sync.WaitGroup
	for i, g := range s.active {
		if i == len(s.active)-1 {
			g.append()
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			g.append()
		}()
	}
	wg.Wait()
	var gone error
	for _, g := range s.active {
		if g.err != nil {
			gone = s.c.explain(s.node, g.err)
			for _, i := range g.deliveries {
				s.outcomes[i] = gone
			}
		}
		clear(g.events)
		g.events, g.deliveries, g.bytes, g.err = g.events[:0], g.deliveries[:0], 0, nil
	}
	if s.dropAck {
		s.link.DropConnection()
		return errDropped
	}
	for i := 0; i < len(ds); {
		first := i
		for i++; i < len(ds) && s.outcomes[i] == s.outcomes[first]; i++ {
		}
		s.link.Settle(ds[first:i], s.outcomes[first])
	}
	s.active, s.outcomes, s.splitter.arena = s.active[:0], s.outcomes[:0], s.splitter.arena[:0]
	return gone
}

// append appends the group's events to the log. Complete deliveries are stored even if
// the client has disconnected meanwhile.
func (g *group) append() {
	_, g.err = g.part.Append(context.Background(), g.events)
}
