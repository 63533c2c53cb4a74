package amqp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// ClientConfig holds the settings of a [Client]. The zero value works.
type ClientConfig struct {
	// ContainerID names the client to the server. Default: a random name.
	ContainerID string
	// Hostname is the name of the server in the open frame. Default: none.
	Hostname string
	// Properties are the properties of the connection. Default: none.
	Properties Map
	// MaxFrameSize is the largest frame accepted, in bytes. Default 64 KiB.
	MaxFrameSize int
	// MaxMessageSize is the largest message accepted, in bytes. A larger one ends the connection.
	// Default 32 MiB.
	MaxMessageSize int
	// IdleTimeout is how long the server may be silent before the connection ends. The
	// idle-time-out sent to the server is half of it (section 2.4.5). Default 1 minute.
	IdleTimeout time.Duration
	// WriteTimeout is how long one write to the server may take. Default 30 s.
	WriteTimeout time.Duration
}

func (cfg *ClientConfig) withDefaults() ClientConfig {
	var c ClientConfig
	if cfg != nil {
		c = *cfg
	}
	if c.ContainerID == "" {
		c.ContainerID = rand.Text()
	}
	if c.MaxFrameSize <= 0 {
		c.MaxFrameSize = 64 << 10
	}
	c.MaxFrameSize = max(c.MaxFrameSize, minFrameSize)
	if c.MaxMessageSize <= 0 {
		c.MaxMessageSize = 32 << 20
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = time.Minute
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = 30 * time.Second
	}
	return c
}

// Client is the client side of one connection. Its methods may be called concurrently.
//
// It has a goroutine that reads and one that writes, which [Client.Close] waits for. The reader
// alone uses what is marked so, without a lock; mu guards the rest that changes. The reader takes
// mu for every frame but transfers: the messages of all transfers that one read from the network
// has brought are handed over together, before the next read.
type Client struct {
	cfg    ClientConfig
	net    net.Conn
	fr     *frameReader
	done   chan struct{}  // closed when the connection has ended
	work   sync.WaitGroup // the reader and the writer
	wake   chan struct{}  // capacity 1: there is output, or complete was set
	tokens sync.Mutex     // held during PutToken: servers allow one link to $cbs at a time

	mu           sync.Mutex
	out          []byte // encoded frames, not yet written
	complete     bool   // the writer ends once out is empty, and nothing more may be queued
	closeSent    bool
	peerMaxFrame int
	heartbeat    time.Duration
	sessions     map[uint16]*clientSession // by the client's channel
	err          error                     // why the connection has ended

	opened  bool                      // the open frames have been exchanged; only the reader uses it
	remote  map[uint16]*clientSession // by the server's channel; only the reader uses it
	pending *Receiver                 // has messages that are not handed over yet; only the reader uses it
}

// NewClient opens a connection over nc, which it owns from now on: SASL ANONYMOUS, as clients of
// Azure use with tokens, and the open frames. ctx bounds that. If it fails, nc is closed.
func NewClient(ctx context.Context, nc net.Conn, cfg *ClientConfig) (*Client, error) {
	c := &Client{
		cfg: cfg.withDefaults(), net: nc, done: make(chan struct{}), wake: make(chan struct{}, 1),
		sessions: make(map[uint16]*clientSession), remote: make(map[uint16]*clientSession), peerMaxFrame: minFrameSize,
	}
	c.fr = newFrameReader(clientReader{c}, func() int { return c.cfg.MaxFrameSize })
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err := c.handshake()
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.opened = true
	c.work.Go(c.read)
	c.work.Go(c.write)
	return c, nil
}

// handshake exchanges protocol headers, SASL and open frames (sections 2.2, 2.4.1 and 5.3.2).
func (c *Client) handshake() error {
	if err := c.exchangeHeader(headerSASL); err != nil {
		return err
	}
	var mechanisms saslMechanisms
	if err := c.readSASL(descMechanisms, mechanisms.decode); err != nil {
		return err
	}
	const anonymous = "ANONYMOUS"
	if !slices.Contains(mechanisms.names, anonymous) {
		return Errorf(CondNotImplemented, "the server offers no SASL mechanism %s", anonymous)
	}
	b, at := beginFrame(nil, frameSASL, 0)
	if _, err := c.net.Write(endFrame((&saslInit{mechanism: anonymous, response: []byte("anonymous")}).encode(b), at)); err != nil {
		return err
	}
	var outcome saslOutcome
	if err := c.readSASL(descOutcome, outcome.decode); err != nil {
		return err
	}
	switch outcome.code {
	case saslOK:
	case saslAuth:
		return Errorf(CondUnauthorized, "the server refuses SASL %s", anonymous)
	default: // a failure of the server's system, which may pass (section 5.3.3.6)
		return Errorf(CondInternal, "SASL %s fails at the server with code %d", anonymous, outcome.code)
	}
	if err := c.exchangeHeader(headerAMQP); err != nil {
		return err
	}
	return c.exchangeOpen()
}

func (c *Client) exchangeHeader(want [8]byte) error {
	if _, err := c.net.Write(want[:]); err != nil {
		return err
	}
	h, err := c.fr.header()
	if err == nil && h != want {
		err = Errorf(CondFraming, "the server does not speak AMQP 1.0: unknown protocol header")
	}
	return err
}

// readSASL reads the SASL frame of a descriptor.
func (c *Client) readSASL(desc byte, decode func(*decoder)) error {
	f, err := c.fr.next()
	if err != nil {
		return err
	}
	d := decoder{buf: f.body}
	if f.kind != frameSASL || d.descriptor(nil) != desc {
		return Errorf(CondFraming, "expected the SASL frame %#02x", desc)
	}
	if decode(&d); d.err != nil {
		return d.err
	}
	return nil
}

func (c *Client) exchangeOpen() error {
	b, at := beginFrame(nil, frameAMQP, 0)
	b = (&open{
		containerID: c.cfg.ContainerID, hostname: c.cfg.Hostname, maxFrameSize: uint32(c.cfg.MaxFrameSize), channelMax: 0xfffe,
		idleTimeOut: uint32(c.cfg.IdleTimeout.Milliseconds() / 2), properties: c.cfg.Properties,
	}).encode(b)
	if _, err := c.net.Write(endFrame(b, at)); err != nil {
		return err
	}
	f, err := c.fr.next()
	if err != nil {
		return err
	}
	d := decoder{buf: f.body}
	if f.kind != frameAMQP || d.descriptor(performativeNames) != descOpen {
		return Errorf(CondNotAllowed, "the first frame must be an open")
	}
	var p open
	switch p.decode(&d); {
	case d.err != nil:
		return d.err
	case p.maxFrameSize < minFrameSize:
		return Errorf(CondInvalidField, "a max-frame-size of %d is below the minimum of %d", p.maxFrameSize, minFrameSize)
	}
	c.peerMaxFrame = int(min(p.maxFrameSize, 1<<20))
	if p.idleTimeOut > 0 {
		c.heartbeat = max(time.Duration(p.idleTimeOut)*time.Millisecond/2, 100*time.Millisecond)
	}
	return nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the connection has ended: an [*Error] of either side, an error of the network or of a
// server that does not read, or [ErrLinkClosed] after [Client.Close]. It is nil while the
// connection is open.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection. It gives the server the time until ctx ends to answer the close
// frame, and waits for the connection's goroutines.
func (c *Client) Close(ctx context.Context) {
	c.mu.Lock()
	c.pushClose(nil)
	c.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	c.end(ErrLinkClosed)
	c.net.Close()
	c.work.Wait()
}

// pushClose queues a close frame, unless one was. c.mu is held.
func (c *Client) pushClose(e *Error) {
	if !c.closeSent {
		c.push(0, &endOrClose{desc: descClose, err: e})
		c.closeSent = true
	}
}

// end ends the connection because of err, unless it has ended. What is queued is still written.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if e, ours := err.(*Error); ours {
		c.pushClose(e)
	}
	c.endLocked(err)
}

func (c *Client) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err, c.complete = err, true
	for _, s := range c.sessions {
		s.endLinks(err)
	}
	close(c.done)
	c.wakeWriter()
}

// maxClientOutput is how many bytes may be queued for the network: beyond it the server makes the
// client answer, and doesn't read the answers.
const maxClientOutput = 256 << 10

// push queues a frame. c.mu is held.
func (c *Client) push(channel uint16, p performative, payload ...byte) {
	if c.complete || c.closeSent {
		return
	}
	b, at := beginFrame(c.out, frameAMQP, channel)
	b = endFrame(append(p.encode(b), payload...), at)
	switch {
	case len(b)-at > c.peerMaxFrame:
		c.endLocked(Errorf(CondFrameSizeTooSmall, "a frame of %d bytes is more than the server's max-frame-size of %d", len(b)-at, c.peerMaxFrame))
	case len(b) > maxClientOutput:
		c.endLocked(fmt.Errorf("the server does not read: %d bytes wait for it", len(b)))
	default:
		c.out = b
		c.wakeWriter()
	}
}

func (c *Client) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write writes queued frames, and heartbeats, until complete is set and all are written. Then it
// closes the network connection, which ends the reader.
func (c *Client) write() {
	defer c.net.Close()
	heartbeat := time.NewTimer(c.cfg.IdleTimeout)
	defer heartbeat.Stop()
	var spare []byte
	for {
		c.mu.Lock()
		buf, complete := c.out, c.complete
		c.out = spare[:0]
		c.mu.Unlock()
		spare = buf
		if len(buf) == 0 {
			if complete {
				return
			}
			var beat <-chan time.Time
			if c.heartbeat > 0 {
				heartbeat.Reset(c.heartbeat)
				beat = heartbeat.C
			}
			select {
			case <-c.wake:
				continue
			case <-beat:
				buf = []byte{0, 0, 0, frameHeaderSize, 2, frameAMQP, 0, 0}
			}
		}
		_ = c.net.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		if _, err := c.net.Write(buf); err != nil {
			c.end(late(err))
			return
		}
	}
}

// clientReader reads from the network. Before it may block, it hands over the messages that have
// come. A server that is silent for [ClientConfig.IdleTimeout] ends the connection.
type clientReader struct{ c *Client }

func (r clientReader) Read(b []byte) (int, error) {
	if r.c.opened {
		r.c.handOver()
		if err := r.c.net.SetReadDeadline(time.Now().Add(r.c.cfg.IdleTimeout)); err != nil {
			return 0, err
		}
	}
	n, err := r.c.net.Read(b)
	if r.c.opened {
		err = late(err)
	}
	return n, err
}

// late returns [os.ErrDeadlineExceeded] for the error of a WebSocket after a deadline of the
// connection: it reports the end of a context of its own, which nobody else has cancelled.
func late(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %v", os.ErrDeadlineExceeded, err)
	}
	return err
}

// read reads frames until the connection ends.
func (c *Client) read() {
	err := c.readFrames()
	c.handOver()
	c.end(err)
}

func (c *Client) readFrames() error {
	for {
		f, err := c.fr.next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return io.EOF
		case err != nil:
			return err
		case len(f.body) == 0:
			continue // a heartbeat
		case f.kind != frameAMQP:
			return Errorf(CondFraming, "frame of type %d on an open connection", f.kind)
		}
		if err := c.dispatch(f); err != nil {
			return err
		}
	}
}
