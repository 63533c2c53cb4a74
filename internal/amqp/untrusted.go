package amqp

import (
	"net"
	"time"
)

// A connection is untrusted until its client has proved a right, if [Config.AuthTimeout] demands
// one: until then the server keeps little for it. A client needs a session, two links to $cbs and
// a request with its token; tokens of Entra ID are a few kilobytes.
const (
	untrustedFrame    = 16 << 10 // largest frame
	untrustedSessions = 8
	untrustedLinks    = 8
	untrustedInput    = 8 << 10  // bytes of messages at which the connection isn't read until they are handled
	untrustedPartial  = 32 << 10 // bytes of unfinished messages at which it is closed
	untrustedOutput   = 1 << 10  // bytes of answers at which it isn't read until they are written
	untrustedWrite    = 10 * time.Second
)

// Trust lifts the limits of a connection whose client has proved a right.
func (c *Conn) Trust() { c.trusted.Store(true) }

// trustedOr returns a limit by whether the connection is trusted.
func (c *Conn) trustedOr(trusted, untrusted int) int {
	if c.trusted.Load() {
		return trusted
	}
	return min(trusted, untrusted)
}

func (c *Conn) maxFrame() int { return c.trustedOr(c.cfg.MaxFrameSize, untrustedFrame) }

var errUntrusted = Errorf(CondUnauthorized, "no valid token was put to $cbs, and no key proved, within the time after opening the connection")

// readDeadline is when the client must have sent something, and that is whether it is also when it
// must have proved a right.
func (c *Conn) readDeadline() (deadline time.Time, toProve bool) {
	deadline = time.Now().Add(c.cfg.IdleTimeout)
	if !c.trusted.Load() && c.mustProve.Before(deadline) {
		return c.mustProve, true
	}
	return deadline, false
}

// await waits for a signal while the connection isn't read, so that its deadline doesn't count.
func (c *Conn) await(signal <-chan struct{}) error {
	var late <-chan time.Time
	if !c.trusted.Load() {
		timer := time.NewTimer(time.Until(c.mustProve))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-signal:
	case <-late:
		if !c.trusted.Load() {
			return errUntrusted
		}
	case <-c.ctx.Done():
		return net.ErrClosed
	}
	return nil
}
