package amqp

import (
	"errors"
	"net"
	"strings"
	"time"
)

// idleReader reads from the network, and fails with errIdle once the client has been silent for
// [Config.IdleTimeout].
type idleReader struct{ c *Conn }

var errIdle = Errorf(CondResourceLimit, "the connection was idle for too long")

func (r idleReader) Read(b []byte) (int, error) {
	for {
		deadline, toProve := time.Time{}, false
		if r.c.opened {
			deadline, toProve = r.c.readDeadline()
			if err := r.c.net.SetReadDeadline(deadline); err != nil {
				return 0, err
			}
		}
		if r.c.interrupted() { // in the meantime: SetReadDeadline has overwritten the deadline that interrupts
			return 0, net.ErrClosed
		}
		n, err := r.c.net.Read(b)
		r.c.srv.received.Add(int64(n))
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() && !r.c.interrupted() {
			switch {
			case toProve && r.c.trusted.Load():
				continue
			case toProve:
				err = errUntrusted
			default:
				err = errIdle
			}
		}
		return n, err
	}
}

// interrupt makes a Read in progress fail, by a deadline in the past.
func (c *Conn) interrupt() { _ = c.net.SetReadDeadline(time.Unix(1, 0)) }

func (c *Conn) interrupted() bool { return c.ctx.Err() != nil || c.localError.Load() != nil }

// awaitOpen reads the client's open frame and answers it.
func (c *Conn) awaitOpen() error {
	f, err := c.fr.next()
	if err != nil {
		return err
	}
	d := decoder{buf: f.body}
	if f.kind != frameAMQP || d.descriptor(performativeNames) != descOpen {
		return Errorf(CondNotAllowed, "the first frame must be an open")
	}
	var p open
	if p.decode(&d); d.err != nil {
		return d.err
	}
	if p.maxFrameSize < minFrameSize {
		return Errorf(CondInvalidField, "a max-frame-size of %d is below the minimum of %d", p.maxFrameSize, minFrameSize)
	}
	if n := c.srv.open.Add(1); c.cfg.Quota > 0 && n > int64(c.cfg.Quota) {
		c.srv.open.Add(-1)
		namespace, _, _ := strings.Cut(p.hostname, ".")
		return Errorf(CondResourceLimit, "ConnectionsQuotaExceeded for namespace: %.100s", namespace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linkless = time.Now()
	c.mustProve = c.linkless.Add(c.cfg.AuthTimeout)
	c.hostname = p.hostname
	c.peerMaxFrame = int(min(p.maxFrameSize, uint32(1<<20)))
	if p.idleTimeOut > 0 {
		// A heartbeat at half of the client's idle-time-out, but at most ten per second.
		c.heartbeat = max(time.Duration(p.idleTimeOut)*time.Millisecond/2, 100*time.Millisecond)
	}
	c.pushOpen()
	c.opened = true
	return c.net.SetDeadline(time.Time{})
}

var performativeNames = map[string]byte{
	"amqp:open:list": descOpen, "amqp:begin:list": descBegin, "amqp:attach:list": descAttach, "amqp:flow:list": descFlow,
	"amqp:transfer:list": descTransfer, "amqp:disposition:list": descDisposition, "amqp:detach:list": descDetach,
	"amqp:end:list": descEnd, "amqp:close:list": descClose,
}

func (c *Conn) readLoop() error {
	for {
		f, err := c.fr.next()
		if err != nil {
			return err
		}
		if len(f.body) == 0 {
			continue // a heartbeat
		}
		if f.kind != frameAMQP {
			return Errorf(CondFraming, "frame of type %d on an open connection", f.kind)
		}
		if err := c.dispatch(f); err != nil {
			return err
		}
		if err := c.applyBackpressure(); err != nil {
			return err
		}
	}
}

// applyBackpressure blocks the reader while too many bytes of messages are unhandled, or too many
// bytes of output are unwritten.
func (c *Conn) applyBackpressure() error {
	for {
		c.mu.Lock()
		inputFull := c.bufferedBytes > c.trustedOr(c.cfg.MaxBuffered, untrustedInput)
		outputFull := len(c.out) > c.trustedOr(4*highWater, untrustedOutput)
		c.mu.Unlock()
		signal := c.bufferFreed
		switch {
		case outputFull:
			signal = c.outputTaken
		case !inputFull:
			return nil
		}
		if err := c.await(signal); err != nil {
			return err
		}
	}
}

// dispatch handles one frame. An error ends the connection.
func (c *Conn) dispatch(f frame) error {
	d := decoder{buf: f.body}
	switch code := d.descriptor(performativeNames); code {
	case descTransfer:
		var p transfer
		if p.decode(&d); d.err == nil {
			return c.onTransfer(f.channel, &p, d.rest())
		}
	case descFlow:
		var p flow
		if p.decode(&d); d.err == nil {
			return c.withSession(f.channel, func(s *session) { s.onFlow(&p) })
		}
	case descDisposition:
		var p disposition
		if p.decode(&d); d.err == nil {
			return c.onDisposition(f.channel, &p)
		}
	case descAttach:
		var p attach
		if p.decode(&d); d.err == nil {
			return c.onAttach(f.channel, &p)
		}
	case descDetach:
		var p detach
		if p.decode(&d); d.err == nil {
			return c.onDetach(f.channel, &p)
		}
	case descBegin:
		var p begin
		if p.decode(&d); d.err == nil {
			return c.onBegin(f.channel, &p)
		}
	case descEnd:
		var p endOrClose
		if p.decode(&d); d.err == nil {
			return c.onEnd(f.channel)
		}
	case descClose:
		var p endOrClose
		if p.decode(&d); d.err == nil {
			return errClosedByClient
		}
	default:
		d.fail("unexpected performative %#02x", code)
	}
	return d.err
}

// withSession calls f with the session on channel, unless that has ended. c.mu is held during the
// call.
func (c *Conn) withSession(channel uint16, f func(*session)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[channel]
	if s == nil {
		return Errorf(CondNotAllowed, "frame on channel %d, which has no session", channel)
	}
	if !s.endSent {
		f(s)
	}
	return nil
}
