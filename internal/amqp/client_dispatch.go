package amqp

import "fmt"

// remoteError is the error in a close, end or detach of the server.
type remoteError struct{ sent *Error }

func (e remoteError) Error() string { return e.sent.Error() }
func (e remoteError) Unwrap() error { return e.sent }

// reasonOf returns the error of a close, end or detach; without one the link was closed.
func reasonOf(e *Error) error {
	if e == nil {
		return fmt.Errorf("%w by the server", ErrLinkClosed)
	}
	return remoteError{e}
}

// dispatch handles one frame. An error ends the connection.
func (c *Client) dispatch(f frame) error {
	d := decoder{buf: f.body}
	code := d.descriptor(performativeNames)
	if code == descTransfer {
		var p transfer
		if p.decode(&d); d.err != nil {
			return d.err
		}
		return c.onTransfer(f.channel, &p, d.rest())
	}
	c.handOver() // what comes before another frame is before it for the owner of a link too
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch code {
	case descBegin:
		var p begin
		if p.decode(&d); d.err == nil {
			err = c.onBegin(f.channel, &p)
		}
	case descAttach:
		var p attach
		if p.decode(&d); d.err == nil {
			err = c.withSession(f.channel, func(s *clientSession) error { return s.onAttach(&p) })
		}
	case descFlow:
		var p flow
		if p.decode(&d); d.err == nil {
			err = c.withSession(f.channel, func(s *clientSession) error { return s.onFlow(&p) })
		}
	case descDisposition: // what is sent is settled, and so is what comes
		var p disposition
		p.decode(&d)
	case descDetach:
		var p detach
		if p.decode(&d); d.err == nil {
			err = c.withSession(f.channel, func(s *clientSession) error { return s.onDetach(&p) })
		}
	case descEnd:
		p := endOrClose{desc: descEnd}
		if p.decode(&d); d.err == nil {
			err = c.withSession(f.channel, func(s *clientSession) error { s.onEnd(&p); return nil })
		}
	case descClose:
		p := endOrClose{desc: descClose}
		if p.decode(&d); d.err == nil {
			c.pushClose(nil)
			return reasonOf(p.err)
		}
	default:
		d.fail("unexpected performative %#02x", code)
	}
	if d.err != nil {
		return d.err
	}
	return err
}

// withSession calls f with the session on a channel of the server.
func (c *Client) withSession(channel uint16, f func(*clientSession) error) error {
	s := c.remote[channel]
	if s == nil {
		return Errorf(CondNotAllowed, "frame on channel %d, which has no session", channel)
	}
	return f(s)
}

func (c *Client) onBegin(channel uint16, p *begin) error {
	s := c.sessions[p.remoteChannel]
	switch {
	case !p.hasRemote || s == nil || s.begun:
		return Errorf(CondNotAllowed, "begin on channel %d answers no begin", channel)
	case c.remote[channel] != nil:
		return Errorf(CondNotAllowed, "channel %d already has a session", channel)
	}
	s.begun, s.remoteChannel = true, channel
	s.nextIncomingID, s.announced = p.nextOutgoingID, p.nextOutgoingID
	c.remote[channel] = s
	return nil
}

// onTransfer handles a transfer: a whole message or a part of one. It runs without the lock.
func (c *Client) onTransfer(channel uint16, p *transfer, payload []byte) error {
	s := c.remote[channel]
	if s == nil {
		return Errorf(CondNotAllowed, "transfer on channel %d, which has no session", channel)
	}
	r, _ := s.remoteLinks[p.handle].(*Receiver)
	if r == nil {
		return Errorf(CondUnattachedHandle, "transfer for handle %d, which has no receiving link", p.handle)
	}
	if c.pending != r {
		c.handOver()
		c.pending = r
	}
	s.transfers++
	return r.receive(p, payload)
}

// handOver gives the owner of a link the messages that have come. Only the reader calls it.
func (c *Client) handOver() {
	r := c.pending
	if r == nil {
		return
	}
	c.pending = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	r.s.received()
	r.handOver()
}
