package amqp

import (
	"bytes"
	"context"
	"time"
)

// Incoming is a link on which the client sends: the server's receiving link endpoint (section 2.6).
type Incoming struct {
	*Link
	wake  chan struct{}
	meter *Meter // nil: not counted
	reply Map    // the link properties of the answer to the attach

	// Guarded by c.mu.
	maxCredit     uint32 // what credit is raised to
	credit        uint32 // messages the client may still send
	deliveryCount uint32
	queue         []Delivery // received, not yet taken by Next
	taken         []Delivery // returned by the last call of Next
	partial       *Delivery  // a delivery whose last transfer is missing
}

// Answer sets the link properties in the answer to the attach. It may be called only by
// [Peer.Incoming].
func (l *Incoming) Answer(properties Map) { l.reply = properties }

// Delivery is a message received.
type Delivery struct {
	// Format is the message format: 0 for a message of the standard.
	Format uint32
	// Payload is the encoded message. It is valid until the next call of [Incoming.Next].
	Payload []byte

	id      uint32
	tag     []byte
	size    int // as received, including bytes that were not kept
	empty   int // transfers without payload
	settled bool
	buf     *[]byte
}

// maxEmptyTransfers is how many transfers of one message may have no payload and be followed by
// others. They carry nothing, so that no size limits them, and a peer could send them without end:
// it would keep a processor busy, and the link would wait for its message for ever. A peer needs
// none of them; a few may come of how it cuts messages.
const maxEmptyTransfers = 100

// add notes a transfer of the delivery, and checks that it is one: it must not begin another one
// before this is complete, and one delivery has one delivery-tag (section 2.7.5).
func (d *Delivery) add(p *transfer, payload []byte) *Error {
	switch {
	case p.hasID && p.deliveryID != d.id:
		return Errorf(CondInvalidField, "message %d begins before message %d is complete", p.deliveryID, d.id)
	case len(p.tag) > 0 && !bytes.Equal(p.tag, d.tag):
		return Errorf(CondInvalidField, "a transfer of message %d has another delivery-tag than its first", d.id)
	}
	d.size += len(payload)
	if len(payload) == 0 && p.more {
		d.empty++
	}
	if d.empty > maxEmptyTransfers {
		return Errorf(CondNotAllowed, "message %d has more than %d transfers without payload", d.id, maxEmptyTransfers)
	}
	return nil
}

// LimitCredit sets how many messages may be in flight on the link, if that is less than
// [Config.Credit]. Only the [Peer] calls it, while it opens the link.
func (l *Incoming) LimitCredit(n int) { l.maxCredit = min(l.maxCredit, uint32(n)) }

// onTransfer handles a transfer: a whole message or a part of one.
func (c *Conn) onTransfer(channel uint16, p *transfer, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[channel]
	switch {
	case s == nil:
		return Errorf(CondNotAllowed, "transfer on channel %d, which has no session", channel)
	case s.endSent:
		return nil
	}
	s.nextIncomingID++
	// The window is reopened before it is used up: what limits a client is link credit and how
	// fast the server reads.
	if s.incomingWindow--; s.incomingWindow < sessionWindow/2 {
		s.incomingWindow = sessionWindow
		s.pushFlow(flow{})
	}
	l := s.links[p.handle]
	switch {
	case l == nil:
		s.fail(Errorf(CondUnattachedHandle, "transfer for handle %d, which has no link", p.handle))
		return nil
	case l.incoming == nil:
		s.fail(Errorf(CondErrantLink, "transfer on link %.100q, whose receiver is the client", l.name))
		return nil
	case l.detachSent || l.detachReceived || l.detachErr != nil:
		return nil
	}
	if e := l.incoming.receive(p, payload); e != nil {
		l.detachErr = e
		l.cancel()
		l.pushDetach()
	}
	if limit := c.trustedOr(c.cfg.MaxBuffered, untrustedPartial); c.partialBytes > limit {
		return Errorf(CondResourceLimit, "more than %d bytes of unfinished messages", limit)
	}
	return nil
}

// receive adds a transfer to its delivery, and queues the message when it is complete.
func (l *Incoming) receive(p *transfer, payload []byte) *Error {
	c := l.c
	if c.cfg.IdleLink > 0 {
		l.used = time.Now()
	}
	if l.partial == nil {
		switch {
		case !p.hasID:
			return Errorf(CondInvalidField, "the first transfer of a message has no delivery-id")
		case l.credit == 0:
			return Errorf(CondTransferLimit, "more messages than the link's credit")
		}
		l.partial = &Delivery{Format: p.format, id: p.deliveryID, tag: bytes.Clone(p.tag), buf: newBuffer(c.bufferSize(p.more, len(payload)))}
		c.partialBytes += cap(*l.partial.buf)
	}
	d := l.partial
	if err := d.add(p, payload); err != nil {
		return err
	}
	if p.aborted {
		l.dropPartial()
		l.credit--
		l.deliveryCount++
		l.replenish()
		return nil
	}
	d.settled = d.settled || p.settled
	if d.size > c.cfg.MaxMessageSize {
		payload = nil // the rest is read, but not kept
		*d.buf = (*d.buf)[:0]
	}
	before := cap(*d.buf)
	*d.buf = append(*d.buf, payload...)
	c.partialBytes += cap(*d.buf) - before
	if p.more {
		return nil
	}
	l.partial = nil
	l.credit--
	l.deliveryCount++
	tooLarge := d.size > c.cfg.MaxMessageSize
	if l.meter != nil {
		l.meter.count(d.size, tooLarge)
	}
	c.partialBytes -= cap(*d.buf)
	if tooLarge {
		l.rejectTooLarge(d)
		return nil
	}
	d.Payload = *d.buf
	c.bufferedBytes += cap(*d.buf)
	l.queue = append(l.queue, *d)
	l.wakeUp()
	return nil
}

// rejectTooLarge rejects a message above the limit and keeps the link, as Azure does.
func (l *Incoming) rejectTooLarge(d *Delivery) {
	if !d.settled {
		e := Errorf(CondMessageSize, "The received message (delivery-id:%d, size:%d bytes) exceeds the limit (%d bytes) currently allowed on the link.",
			d.id, d.size, l.c.cfg.MaxMessageSize)
		l.c.push(l.s.channel, &disposition{receiver: true, first: d.id, last: d.id, settled: true, state: &deliveryState{err: e}})
	}
	d.free()
	l.replenish()
}

func (l *Incoming) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Incoming) dropPartial() {
	if l.partial != nil {
		l.c.partialBytes -= cap(*l.partial.buf)
		l.partial.free()
		l.partial = nil
	}
}

// replenish raises the client's credit again once half of it is used. Messages in the queue count
// as used.
func (l *Incoming) replenish() {
	limit := l.maxCredit
	used := l.credit + uint32(len(l.queue)+len(l.taken))
	if used >= limit || limit-used < (limit+1)/2 {
		return
	}
	l.credit += limit - used
	l.pushFlow()
}

func (l *Incoming) pushFlow() {
	l.s.pushFlow(flow{handle: l.handle, hasHandle: true, deliveryCount: l.deliveryCount, credit: l.credit})
}

// Next returns all messages received since the last call, and waits until there is at least one.
// It invalidates the payloads of the messages returned before. After the client has detached the
// link, Next still returns what was received before, then [ErrLinkClosed]; after the server has
// detached it, Next returns ErrLinkClosed at once.
func (l *Incoming) Next(ctx context.Context) ([]Delivery, error) {
	c := l.c
	for {
		c.mu.Lock()
		l.release()
		if len(l.queue) > 0 && l.detachErr == nil {
			l.queue, l.taken = l.taken[:0], l.queue
			c.mu.Unlock()
			return l.taken, nil
		}
		l.replenish()
		closed := l.ctx.Err() != nil
		c.mu.Unlock()
		if closed {
			return nil, ErrLinkClosed
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// release frees the messages that the last Next returned.
func (l *Incoming) release() {
	for i := range l.taken {
		l.c.bufferedBytes -= cap(*l.taken[i].buf)
		l.taken[i].free()
	}
	l.taken = l.taken[:0]
	select {
	case l.c.bufferFreed <- struct{}{}:
	default:
	}
}

// discard frees the messages that were received and will not be handled.
func (l *Incoming) discard() {
	l.release()
	l.taken, l.queue = l.queue, nil
	l.release()
	l.taken = nil
}

// Settle sends the outcome of messages that Next returned: accepted if err is nil, otherwise
// rejected. Consecutive delivery ids share a disposition. Messages are settled at once even with
// rcv-settle-mode second, which waits for the client's settlement: Azure's Python library asks for
// that mode and then doesn't settle.
func (l *Incoming) Settle(ds []Delivery, err error) {
	state := &deliveryState{}
	if err != nil {
		state.err = l.c.errorForPeer(err)
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.detachSent || l.s.endSent {
		return
	}
	for i := 0; i < len(ds); {
		first := ds[i]
		last := first.id
		for i++; i < len(ds) && ds[i].id == last+1 && ds[i].settled == first.settled; i++ {
			last++
		}
		if !first.settled {
			l.c.push(l.s.channel, &disposition{
				receiver: true, first: first.id, last: last, settled: true, state: state,
			})
		}
	}
}
