package amqp

import (
	"errors"
	"fmt"
)

// Protocol headers (sections 2.2 and 5.3.1).
var (
	headerAMQP = [8]byte{'A', 'M', 'Q', 'P', 0, 1, 0, 0}
	headerSASL = [8]byte{'A', 'M', 'Q', 'P', 3, 1, 0, 0}
)

// Codes of a SASL outcome (section 5.3.3.6).
const (
	saslOK   = 0
	saslAuth = 1
)

var errNotAMQP = errors.New("the client does not speak AMQP 1.0: unknown protocol header")

// handshake exchanges protocol headers and does the SASL exchange, up to and including the
// client's AMQP header.
func (c *Conn) handshake() error {
	h, err := c.fr.header()
	if err != nil {
		return err
	}
	switch h {
	case headerSASL:
		if err := c.sasl(); err != nil {
			return err
		}
		if h, err = c.fr.header(); err != nil {
			return err
		}
		if h != headerAMQP {
			c.write(headerAMQP[:])
			return errNotAMQP
		}
	case headerAMQP:
		if err := c.peer.Authenticate("", nil); err != nil {
			return err
		}
	default:
		c.write(headerSASL[:]) // an unknown header is answered with a supported one (section 2.2)
		return errNotAMQP
	}
	c.write(headerAMQP[:])
	c.headersExchanged = true
	return nil
}

func (c *Conn) sasl() error {
	c.write(headerSASL[:])
	c.writeSASL(&saslMechanisms{names: Mechanisms})
	f, err := c.fr.next()
	if err != nil {
		return err
	}
	d := decoder{buf: f.body}
	var init saslInit
	if f.kind != frameSASL || d.descriptor(nil) != descInit {
		return fmt.Errorf("expected the SASL init frame")
	}
	if init.decode(&d); d.err != nil {
		return d.err
	}
	known := false
	for _, m := range Mechanisms {
		known = known || m == init.mechanism
	}
	if !known {
		err = fmt.Errorf("unknown SASL mechanism")
	} else {
		err = c.peer.Authenticate(string(init.mechanism), init.response)
	}
	if err != nil {
		c.writeSASL(&saslOutcome{code: saslAuth})
		return fmt.Errorf("SASL: %w", err)
	}
	c.writeSASL(&saslOutcome{code: saslOK})
	return nil
}

// write queues bytes that are not AMQP frames: protocol headers.
func (c *Conn) write(b []byte) {
	c.mu.Lock()
	c.out = append(c.out, b...)
	c.mu.Unlock()
	c.wakeWriter()
}

func (c *Conn) writeSASL(p performative) {
	c.mu.Lock()
	b, at := beginFrame(c.out, frameSASL, 0)
	c.out = endFrame(p.encode(b), at)
	c.mu.Unlock()
	c.wakeWriter()
}
