package amqp

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxName and maxAddress bound the name and the addresses in an attach, in bytes.
const (
	maxName    = 1024
	maxAddress = 2048
)

// Link is what incoming and outgoing links have in common. c.mu guards the fields that change.
type Link struct {
	c             *Conn
	s             *session
	name          string
	handle        uint32
	address       string
	clientAddress string
	props         Map
	filter        Map
	desired       []Symbol
	sndSettle     byte
	ctx           context.Context
	cancel        context.CancelFunc

	incoming *Incoming // exactly one of these is set
	outgoing *Outgoing

	used           time.Time // of the last message, if links can be idle
	attached       bool      // the attach has been answered
	detachErr      *Error
	detachSent     bool
	detachReceived bool
	peerClosed     bool // the client's detach had closed set
}

// Name is the link's name, chosen by the client.
func (l *Link) Name() string { return l.name }

// Address is the address of the node: the target of an incoming link, the source of an outgoing
// one.
func (l *Link) Address() string { return l.address }

// ClientAddress is the address of the terminus at the client's end; replies to requests are sent
// to it.
func (l *Link) ClientAddress() string { return l.clientAddress }

// Properties are the link properties that the client sent. Like the filter and the desired
// capabilities, they are available only while the [Peer] opens the link.
func (l *Link) Properties() Map { return l.props }

// Filter is the filter set of the client's source.
func (l *Link) Filter() Map { return l.filter }

// Desired reports whether the client desires a capability of the link.
func (l *Link) Desired(capability Symbol) bool { return slices.Contains(l.desired, capability) }

func (l *Link) key() linkKey { return linkKey{name: l.name, incoming: l.incoming != nil} }

// Detach detaches the link from the server's side, because of err. It returns at once; the link's
// context ends. Detaching a link that is already detached does nothing, and returns false. It must
// not be called with locks held that the link's function takes.
func (l *Link) Detach(err error) bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.detachErr != nil || l.detachReceived {
		return false
	}
	l.detachErr = wireError(err)
	l.cancel()
	if l.attached {
		l.pushDetach()
	}
	return true
}

// DropConnection closes the link's connection without a close frame, as a network failure would.
func (l *Link) DropConnection() { l.c.drop() }

// pushDetach queues the detach frame, unless one was sent.
func (l *Link) pushDetach() {
	if l.detachSent || l.s.endSent {
		return
	}
	l.detachSent = true
	if l.c.suppressDetach {
		return
	}
	closed := !l.detachReceived || l.peerClosed || l.detachErr != nil
	l.c.push(l.s.channel, &detach{handle: l.handle, closed: closed, err: l.detachErr})
}

func (c *Conn) onAttach(channel uint16, p *attach) error {
	var in *Incoming
	var out *Outgoing
	l := &Link{c: c, name: p.name, handle: p.handle, props: p.properties, sndSettle: p.sndSettle, desired: p.desired}
	if p.receiver {
		out = &Outgoing{Link: l, wake: make(chan struct{}, 1)}
		l.outgoing = out
	} else {
		in = &Incoming{Link: l, wake: make(chan struct{}, 1), deliveryCount: p.initialCount, maxCredit: uint32(c.cfg.Credit)}
		l.incoming = in
	}
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	ok := false
	if err := c.withSession(channel, func(s *session) { ok = s.register(l) }); err != nil || !ok {
		l.cancel()
		return err
	}
	var run func(context.Context) error
	err := l.readTermini(p)
	switch {
	case err != nil:
	case in != nil:
		run, err = c.peer.Incoming(in)
	default:
		run, err = c.peer.Outgoing(out)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	l.props, l.filter, l.desired = nil, nil, nil
	if err != nil {
		l.attached = true
		l.refuse(p, err)
		return nil
	}
	answer := *p
	answer.receiver = !p.receiver
	answer.initialCount = 0
	answer.properties, answer.desired = nil, nil
	if p.source != nil && !c.trusted.Load() {
		source := *p.source
		source.filter = nil
		answer.source = &source
	}
	answer.maxMessage = 0 // only the receiver states a limit (section 2.7.3)
	if in != nil {
		answer.maxMessage = uint64(c.cfg.MaxMessageSize)
		answer.properties = in.reply
	}
	if out != nil && out.deferred != nil {
		out.deferred = &answer
	} else {
		l.attached = true
		c.push(channel, &answer)
	}
	if in != nil {
		in.replenish()
	}
	l.s.runningLinks++
	c.linkGroup.Add(1)
	go func() {
		defer c.linkGroup.Done()
		l.finish(run(l.ctx))
	}()
	return nil
}

// register adds a new link to its session, or ends the session if the attach is invalid.
func (s *session) register(l *Link) bool {
	c := s.c
	l.s = s
	switch {
	case len(l.name) > maxName:
		s.fail(Errorf(CondInvalidField, "the link's name is longer than %d bytes", maxName))
		return false
	case l.handle >= uint32(c.cfg.MaxLinks):
		s.fail(Errorf(CondNotAllowed, "handle %d is above the agreed maximum of %d", l.handle, c.cfg.MaxLinks-1))
		return false
	case s.links[l.handle] != nil:
		s.fail(Errorf(CondHandleInUse, "handle %d is in use", l.handle))
		return false
	case c.linkCount >= c.trustedOr(c.cfg.MaxLinks, untrustedLinks):
		s.fail(Errorf(CondResourceLimit, "a connection may have at most %d links, %d before its client has proved a right", c.cfg.MaxLinks, untrustedLinks))
		return false
	}
	// A second link of the same name and direction replaces the first (section 2.6.1).
	if old := c.linksByName[l.key()]; old != nil && old.detachErr == nil && !old.detachReceived {
		old.detachErr = Errorf(CondStolen, "another link of this name was attached")
		old.cancel()
		old.pushDetach()
	}
	s.links[l.handle] = l
	c.linksByName[l.key()] = l
	c.linkCount++
	c.hadLink = true
	l.used = time.Now()
	return true
}

// readTermini reads the addresses and the filter from source and target.
func (l *Link) readTermini(p *attach) error {
	near, far := p.target, p.source
	if l.outgoing != nil {
		near, far = p.source, p.target
	}
	switch {
	case near != nil && near.coordinator || far != nil && far.coordinator:
		return Errorf(CondNotImplemented, "transactions are not supported: the link's target is a transaction coordinator")
	case near == nil || near.dynamic:
		return Errorf(CondNotImplemented, "the attach has no address for the server's side: dynamic nodes and links without source or target are not supported")
	case len(near.address) > maxAddress || far != nil && len(far.address) > maxAddress:
		return Errorf(CondInvalidField, "an address is longer than %d bytes", maxAddress)
	}
	l.address = near.address
	if far != nil {
		l.clientAddress = far.address
	}
	if p.source != nil {
		l.filter = p.source.filter
	}
	return nil
}

// refuse answers an attach with one that has no source or target, and detaches at once (section
// 2.6.3).
func (l *Link) refuse(p *attach, err error) {
	answer := &attach{name: p.name, handle: p.handle, receiver: !p.receiver, sndSettle: p.sndSettle, rcvSettle: p.rcvSettle}
	l.c.push(l.s.channel, answer)
	if l.detachErr == nil {
		l.detachErr = l.c.errorForPeer(err)
	}
	l.cancel()
	l.pushDetach()
	l.address, l.clientAddress = "", "" // the link stays until the client has detached it
}

// finish is called when the link's function has returned.
func (l *Link) finish(err error) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	quietly := err == nil || errors.Is(err, ErrLinkClosed) || errors.Is(err, context.Canceled)
	if !quietly && l.detachErr == nil {
		l.detachErr = c.errorForPeer(err)
	}
	l.cancel()
	if !l.attached && !l.s.endSent { // the attach was deferred, and is refused now
		l.attached = true
		p := l.outgoing.deferred
		c.push(l.s.channel, &attach{name: p.name, handle: p.handle, sndSettle: p.sndSettle, rcvSettle: p.rcvSettle})
	}
	l.pushDetach()
	if l.incoming != nil {
		l.incoming.discard()
	}
	if l.detachReceived {
		l.s.unregister(l)
	}
	l.s.runningLinks--
	l.s.endIfDone()
}

// errorForPeer returns the AMQP error to send for err, and logs err if that is an error of the
// server itself.
func (c *Conn) errorForPeer(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		c.cfg.Log.Error("link failed", "remote", c.RemoteAddr().String(), "error", err)
	}
	return wireError(err)
}
