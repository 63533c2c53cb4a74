package amqp

import "context"

// Outgoing is a link on which the client receives: the server's sending link endpoint (section
// 2.6). Only the link's function calls its methods, except where stated otherwise.
type Outgoing struct {
	*Link
	wake chan struct{}

	// settle is the function of OnSettle; it doesn't change after the attach has been answered.
	settle func(tag [16]byte, o Outcome) (wait func() error, err error)
	// deferred is the answer to the attach, until CompleteAttach sends it.
	deferred *attach

	// Guarded by c.mu.
	deliveryCount uint32
	credit        uint32
	drain         bool
	idle          bool     // nothing to send
	rest          []byte   // the part of a message for which the session's window had no room
	restTransfer  transfer // of that message
}

func (l *Outgoing) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// onFlow sets the credit that the client grants (section 2.6.7).
func (l *Outgoing) onFlow(p *flow) {
	if p.hasCredit {
		credit := p.deliveryCount + p.credit - l.deliveryCount
		if int32(credit) < 0 && p.credit < 1<<31 {
			credit = 0
		}
		l.credit = credit
	}
	l.drain = p.drain
	if l.idle && l.drain {
		l.finishDrain()
		return
	}
	if p.echo {
		l.pushFlow()
	}
}

// finishDrain ends a drain: it consumes the remaining credit (section 2.6.7).
func (l *Outgoing) finishDrain() {
	l.deliveryCount += l.credit
	l.credit = 0
	l.pushFlow()
	l.drain = false
}

func (l *Outgoing) pushFlow() {
	l.s.pushFlow(flow{handle: l.handle, hasHandle: true, deliveryCount: l.deliveryCount, credit: l.credit, drain: l.drain})
}

// WaitCredit waits until a message can be sent, and returns the link credit.
func (l *Outgoing) WaitCredit(ctx context.Context) (int, error) {
	for {
		l.c.mu.Lock()
		l.idle = false
		l.sendRest()
		credit := 0
		if len(l.rest) == 0 && l.s.remoteIncomingWindow > 0 && l.hasRoom() {
			credit = int(min(l.credit, 1<<30))
		}
		l.c.mu.Unlock()
		if l.ctx.Err() != nil {
			return 0, ErrLinkClosed
		}
		if credit > 0 {
			return credit, nil
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Idle declares that there is nothing to send now, so that a drain is answered at once.
func (l *Outgoing) Idle() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.idle = true
	if l.drain && !l.closing() {
		l.finishDrain()
	}
}

func (l *Outgoing) closing() bool {
	return l.detachSent || l.detachReceived || l.s.endSent || l.c.outputClosed
}

// hasRoom reports whether more may be queued for the network; if not, the writer wakes the link
// later.
func (l *Outgoing) hasRoom() bool {
	if len(l.c.out) < highWater {
		return true
	}
	l.c.waitingLinks = append(l.c.waitingLinks, l)
	return false
}

// Send queues up to n messages, as many as credit, the session's window and the room for output
// allow, and returns how many; encode appends the i-th message to b and returns the result. encode
// runs with the connection's lock held: it must be quick, and must not call methods of the link.
// Messages are sent settled, unless the client asked for snd-settle-mode unsettled. To a client
// that asked for settled, the delivery-tag is empty, as Service Bus sends it.
func (l *Outgoing) Send(n int, format uint32, encode func(b []byte, i int) []byte) (sent int, err error) {
	return l.send(n, format, nil, encode)
}

// OnSettle makes f receive the outcome of every message that [Outgoing.SendTagged] sends. An error
// of f, or of wait, is sent to the client as a rejected outcome. f is called by the goroutine that
// reads the connection, and must not block for long; wait may. Only the [Peer] calls OnSettle,
// while it opens the link.
func (l *Outgoing) OnSettle(f func(tag [16]byte, o Outcome) (wait func() error, err error)) {
	l.settle = f
}

// DeferAttach leaves the answer to the attach to the link's function, which calls
// [Outgoing.CompleteAttach] or refuses the link by an error. Only the [Peer] calls it, while it
// opens the link.
func (l *Outgoing) DeferAttach() { l.deferred = &attach{} }

// CompleteAttach sends the deferred answer to an attach, with the filter that is in force, and
// properties.
func (l *Outgoing) CompleteAttach(filter, properties Map) error {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.closing() || l.ctx.Err() != nil {
		return ErrLinkClosed
	}
	source := *l.deferred.source
	source.filter = filter
	l.deferred.source, l.deferred.properties = &source, properties
	c.push(l.s.channel, l.deferred)
	l.attached, l.deferred = true, nil
	return nil
}

// PreSettled reports whether the client asked for snd-settle-mode settled.
func (l *Outgoing) PreSettled() bool { return l.sndSettle == senderSettled }

// SendTagged is Send for messages that the client has to settle, each with its own delivery-tag.
func (l *Outgoing) SendTagged(n int, format uint32, tag func(i int) [16]byte, encode func(b []byte, i int) []byte) (sent int, err error) {
	return l.send(n, format, tag, encode)
}

func (l *Outgoing) send(n int, format uint32, tag func(i int) [16]byte, encode func(b []byte, i int) []byte) (sent int, err error) {
	c, s := l.c, l.s
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.closing() || l.ctx.Err() != nil {
		return 0, ErrLinkClosed
	}
	for sent < n && l.credit > 0 && s.remoteIncomingWindow > 0 && len(l.rest) == 0 && (len(c.out) < highWater || sent == 0) {
		t := transfer{handle: l.handle, deliveryID: s.nextDeliveryID, hasID: true, format: format, settled: l.sndSettle != senderUnsettled}
		switch {
		case tag != nil:
			u := unsettled{link: l, tag: tag(sent)}
			s.unsettled[t.deliveryID] = u
			t.settled, t.tag = false, u.tag[:]
		case l.PreSettled():
			t.tag = []byte{}
		}
		b, at := beginFrame(c.out, frameAMQP, s.channel)
		b = t.encode(b)
		body := len(b)
		b = encode(b, sent)
		s.nextDeliveryID++
		l.deliveryCount++
		l.credit--
		sent++
		if len(b)-at <= c.peerMaxFrame {
			c.out = endFrame(b, at)
			s.nextOutgoingID++
			s.remoteIncomingWindow--
			continue
		}
		l.rest, l.restTransfer = append(l.rest[:0], b[body:]...), t
		c.out = b[:at]
		l.sendRest()
	}
	if sent > 0 {
		c.wakeWriter()
	}
	return sent, nil
}

// sendRest sends the rest of a message that needs several frames, as far as the session's window
// allows.
func (l *Outgoing) sendRest() {
	c, s := l.c, l.s
	if len(l.rest) == 0 || l.closing() {
		return
	}
	rest := l.rest
	for len(rest) > 0 && s.remoteIncomingWindow > 0 {
		part := rest[:min(len(rest), c.peerMaxFrame-transferOverhead)]
		rest = rest[len(part):]
		l.restTransfer.more = len(rest) > 0
		b, at := beginFrame(c.out, frameAMQP, s.channel)
		c.out = endFrame(append(l.restTransfer.encode(b), part...), at)
		s.nextOutgoingID++
		s.remoteIncomingWindow--
	}
	l.rest = l.rest[:copy(l.rest, rest)]
	c.wakeWriter()
}
