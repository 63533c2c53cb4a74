package amqp

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// highWater is how much may wait for the network before links pause sending. The reader of a connection, whose answers are small,
	// pauses at four times that.
	highWater = 256 << 10
	// handshakeTimeout bounds the time from accepting a connection to its open frame.
	handshakeTimeout = 30 * time.Second
	// lingerTimeout is how long a client gets to read why it was disconnected.
	lingerTimeout = time.Second
)

// Conn is one connection. Three kinds of goroutines work on it: one reads frames and advances the state of sessions and links; one writes
// what has been queued, as much as there is at once; and each link has one that runs the function its [Peer] supplied.
//
// mu guards all state of the connection, its sessions and links. It is never held over I/O or a call of the Peer, only over encoding.
type Conn struct {
	srv       *Server
	cfg       *Config
	net       net.Conn
	fr        *frameReader
	peer      Peer
	ctx       context.Context // ends with the connection
	cancel    context.CancelFunc
	linkGroup sync.WaitGroup

	writerWake  chan struct{} // something to write
	outputTaken chan struct{} // something was written
	bufferFreed chan struct{} // something buffered was handled

	mu                  sync.Mutex
	hostname            string
	out                 []byte // frames to be written
	outputComplete      bool   // the writer ends once out is empty
	outputClosed        bool   // nothing may be queued: the close frame has been, or the network failed
	suppressDetach      bool   // links end without a detach frame: the connection's close says it all
	shuttingDown        bool   // the server closes
	peerMaxFrame        int
	heartbeat           time.Duration
	sessions            map[uint16]*session
	linksByName         map[linkKey]*Link
	linkCount           int
	waitingLinks        []*Outgoing          // links that wait for room in out
	bufferedBytes       int                  // bytes of complete messages that no link has handled yet
	dispositions        []pendingDisposition // to what clients have settled, in order
	sendingDispositions bool                 // a goroutine is at them
	partialBytes        int                  // bytes of messages whose last frame is still to come

	headersExchanged bool                  // the AMQP headers have been exchanged; only the reader uses it
	opened           bool                  // the open frames have been exchanged; only the reader uses it
	dropped          atomic.Bool           // the connection was cut
	localError       atomic.Pointer[Error] // ends the connection, although what was read was in order
}

type linkKey struct {
	name     string
	incoming bool
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		srv: s, cfg: &s.cfg, net: nc,
		writerWake: make(chan struct{}, 1), outputTaken: make(chan struct{}, 1), bufferFreed: make(chan struct{}, 1),
		sessions: make(map[uint16]*session), linksByName: make(map[linkKey]*Link),
		peerMaxFrame: minFrameSize,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.fr = newFrameReader(idleReader{c}, s.cfg.MaxFrameSize)
	c.peer = s.newPeer(c)
	return c
}

// Hostname is the name by which the client addressed the server.
func (c *Conn) Hostname() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hostname
}

// RemoteAddr is the client's network address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// idleReader makes a read fail once the client has been silent for too long.
type idleReader struct{ c *Conn }

var errIdle = Errorf(CondResourceLimit, "the connection was idle for too long")

func (r idleReader) Read(b []byte) (int, error) {
	if r.c.opened {
		if err := r.c.net.SetReadDeadline(time.Now().Add(r.c.cfg.IdleTimeout)); err != nil {
			return 0, err
		}
	}
	if r.c.interrupted() { // meanwhile, and the deadline that was to wake the reader has been overwritten
		return 0, net.ErrClosed
	}
	n, err := r.c.net.Read(b)
	r.c.srv.received.Add(int64(n))
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() && !r.c.interrupted() {
		err = errIdle
	}
	return n, err
}

// interrupt makes the reader of the connection return.
func (c *Conn) interrupt() { _ = c.net.SetReadDeadline(time.Unix(1, 0)) }

func (c *Conn) interrupted() bool { return c.ctx.Err() != nil || c.localError.Load() != nil }

// serve runs the connection until its end.
func (c *Conn) serve() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.writeLoop()
	}()
	_ = c.net.SetDeadline(time.Now().Add(handshakeTimeout))
	err := c.handshake()
	if err == nil {
		err = c.awaitOpen()
	}
	if err == nil {
		err = c.readLoop()
	}
	if e := c.localError.Load(); e != nil {
		err = e
	}
	c.startClose(err)
	c.linkGroup.Wait()
	c.finishClose(err)
	<-done
	c.linger(err)
	c.net.Close()
	c.cancel()
	c.peer.Closed()
	c.cfg.Log.Debug("connection closed", "remote", c.RemoteAddr().String(), "reason", err)
}

// errClosedByClient is the end of a connection that the client closed in the proper way.
var errClosedByClient = errors.New("closed by the client")

// startClose is called when reading has ended, for whatever reason: it makes the links' functions return.
func (c *Conn) startClose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suppressDetach = true
	var e *Error
	if errors.As(err, &e) && !c.shuttingDown && c.headersExchanged {
		if !c.opened {
			c.pushOpen() // no close without an open
		}
		c.push(0, &endOrClose{desc: descClose, err: e})
		c.outputClosed = true
	}
	for _, s := range c.sessions {
		s.cancelLinks()
	}
	c.cancel()
}

// finishClose sends the close frame, if it is still due, and has the writer finish.
func (c *Conn) finishClose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shuttingDown && c.opened:
		c.push(0, &endOrClose{desc: descClose, err: Errorf(CondConnectionForced, "the server is shutting down")})
	case errors.Is(err, errClosedByClient):
		c.push(0, &endOrClose{desc: descClose})
	}
	c.outputClosed, c.outputComplete = true, true
	c.wakeWriter()
}

// linger gives the client time to read the close frame: closing a socket that holds unread input would discard it on the way.
func (c *Conn) linger(err error) {
	var e *Error
	c.mu.Lock()
	stopping := c.shuttingDown
	c.mu.Unlock()
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || c.dropped.Load() || half.CloseWrite() != nil {
		return
	}
	if !stopping && !errors.As(err, &e) && !errors.Is(err, errNotAMQP) || c.net.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.net)
}

// shutdown ends the connection because the server closes.
func (c *Conn) shutdown() {
	c.mu.Lock()
	c.shuttingDown, c.suppressDetach = true, true
	c.mu.Unlock()
	c.cancel()
	c.interrupt()
}

// drop ends the connection without a word.
func (c *Conn) drop() {
	c.dropped.Store(true)
	c.mu.Lock()
	c.outputClosed = true
	c.mu.Unlock()
	c.cancel()
	c.net.Close()
}

func (c *Conn) wakeWriter() {
	select {
	case c.writerWake <- struct{}{}:
	default:
	}
}

// push queues a frame. c.mu is held.
func (c *Conn) push(channel uint16, p performative) {
	if c.outputClosed {
		return
	}
	b, at := beginFrame(c.out, frameAMQP, channel)
	b = endFrame(p.encode(b), at)
	if size := len(b) - at; size > c.peerMaxFrame {
		c.out = b[:at]
		if c.localError.CompareAndSwap(nil, Errorf(CondFrameSizeTooSmall, "an answer needs a frame of %d bytes", size)) {
			c.interrupt()
		}
		return
	}
	c.out = b
	c.wakeWriter()
}

// writeLoop writes what is queued until the connection's end. Whatever accumulates during one write goes out with the next.
func (c *Conn) writeLoop() {
	var spare []byte
	beat := time.NewTimer(0)
	beat.Stop()
	defer beat.Stop()
	for {
		c.mu.Lock()
		buf := c.out
		c.out = spare[:0]
		last, every := c.outputComplete, c.heartbeat
		waiters := c.waitingLinks
		c.waitingLinks = nil
		c.mu.Unlock()
		spare = buf
		for _, l := range waiters {
			l.wakeUp()
		}
		select {
		case c.outputTaken <- struct{}{}:
		default:
		}
		if len(buf) == 0 {
			if last {
				return
			}
			if every > 0 {
				beat.Reset(every)
			}
			select {
			case <-c.writerWake:
				beat.Stop()
				continue
			case <-beat.C:
				buf = []byte{0, 0, 0, frameHeaderSize, 2, frameAMQP, 0, 0}
			}
		}
		_ = c.net.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		n, err := c.net.Write(buf)
		c.srv.sent.Add(int64(n))
		if err != nil {
			c.drop()
			return
		}
		if cap(spare) > 8*highWater {
			spare = nil
		}
	}
}

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
		return Errorf(CondInvalidField, "a max-frame-size of %d is below the %d that the standard asks for", p.maxFrameSize, minFrameSize)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hostname = p.hostname
	c.peerMaxFrame = int(min(p.maxFrameSize, uint32(1<<20)))
	if p.idleTimeOut > 0 {
		// A heartbeat at half the time that the client allows; however short that is, not more than ten a second.
		c.heartbeat = max(time.Duration(p.idleTimeOut)*time.Millisecond/2, 100*time.Millisecond)
	}
	c.pushOpen()
	c.opened = true
	return c.net.SetDeadline(time.Time{})
}

func (c *Conn) pushOpen() {
	c.push(0, &open{
		containerID: c.cfg.ContainerID, maxFrameSize: uint32(c.cfg.MaxFrameSize), channelMax: uint16(c.cfg.MaxSessions - 1),
		idleTimeOut: uint32(c.cfg.IdleTimeout.Milliseconds() / 2),
		properties:  Map{{Symbol("product"), "Sluice"}},
	})
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

// applyBackpressure holds the reader back while too much of what it read is unhandled, or too much of what it answered is unread.
func (c *Conn) applyBackpressure() error {
	for {
		c.mu.Lock()
		full, clogged := c.bufferedBytes > c.cfg.MaxBuffered, len(c.out) > 4*highWater
		c.mu.Unlock()
		switch {
		case clogged:
			select {
			case <-c.outputTaken:
			case <-c.ctx.Done():
				return net.ErrClosed
			}
		case full:
			select {
			case <-c.bufferFreed:
			case <-c.ctx.Done():
				return net.ErrClosed
			}
		default:
			return nil
		}
	}
}

// dispatch acts on one frame. An error ends the connection.
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

// withSession calls f with the session on channel, c.mu held.
func (c *Conn) withSession(channel uint16, f func(*session)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[channel]
	if s == nil {
		return Errorf(CondNotAllowed, "frame on channel %d, on which no session has begun", channel)
	}
	if !s.endSent {
		f(s)
	}
	return nil
}
