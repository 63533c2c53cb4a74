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
	// highWater is how many bytes may be queued for the network before links stop sending. The
	// reader of a connection, whose answers are small, stops at four times that.
	highWater = 256 << 10
	// handshakeTimeout bounds the time from accepting a connection to its open frame.
	handshakeTimeout = 30 * time.Second
	// lingerTimeout is how long a client has to read the close frame.
	lingerTimeout = time.Second
)

// Conn is one connection. The package documentation describes its goroutines and its lock.
type Conn struct {
	srv       *Server
	cfg       *Config
	net       net.Conn
	fr        *frameReader
	peer      Peer
	ctx       context.Context // ends with the connection
	cancel    context.CancelFunc
	linkGroup sync.WaitGroup // goroutines of links, and the one that sends dispositions

	writerWake  chan struct{} // capacity 1: out is not empty, or outputComplete was set
	outputTaken chan struct{} // capacity 1: the writer has taken out
	bufferFreed chan struct{} // capacity 1: bufferedBytes has fallen

	mu                  sync.Mutex
	hostname            string
	out                 []byte // encoded frames, not yet written
	outputComplete      bool   // the writer ends once out is empty
	outputClosed        bool   // nothing more may be queued: the close frame was, or the connection was dropped
	suppressDetach      bool   // links end without a detach frame: the connection closes
	shuttingDown        bool   // the server is being closed
	peerMaxFrame        int
	heartbeat           time.Duration
	sessions            map[uint16]*session
	linksByName         map[linkKey]*Link
	linkCount           int
	hadLink             bool
	linkless            time.Time            // since when there is no link, if there is none
	waitingLinks        []*Outgoing          // links that wait until out is taken
	bufferedBytes       int                  // size of the buffers of complete messages that no link has handled yet
	dispositions        []pendingDisposition // answers to the client's dispositions, in order
	sendingDispositions bool                 // a goroutine runs sendDispositions
	partialBytes        int                  // size of the buffers of messages whose last transfer is missing

	headersExchanged bool                  // the AMQP headers have been exchanged; only the reader uses it
	opened           bool                  // the open frames have been exchanged; only the reader uses it
	mustProve        time.Time             // when the client must have proved a right; only the reader uses it
	trusted          atomic.Bool           // it has, or needn't
	dropped          atomic.Bool           // drop was called
	localError       atomic.Pointer[Error] // ends the connection because of the server's side, not because of input
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
	c.trusted.Store(s.cfg.AuthTimeout <= 0)
	c.fr = newFrameReader(idleReader{c}, c.maxFrame)
	c.peer = s.newPeer(c)
	return c
}

// Hostname is the host name in the client's open frame.
func (c *Conn) Hostname() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hostname
}

// RemoteAddr is the client's network address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

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
		err = c.run()
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
	if c.opened {
		c.srv.open.Add(-1)
	}
	c.peer.Closed()
	c.cfg.Log.Debug("connection closed", "remote", c.RemoteAddr().String(), "reason", err)
}

// run serves the open connection.
func (c *Conn) run() error {
	if c.cfg.watchesIdle() {
		c.linkGroup.Go(c.watchIdle)
	}
	return c.readLoop()
}

// failLocally ends the connection because of the server's side. c.mu is held.
func (c *Conn) failLocally(e *Error) {
	if c.localError.CompareAndSwap(nil, e) {
		c.interrupt()
	}
}

// errClosedByClient is the end of a connection after the client's close frame.
var errClosedByClient = errors.New("closed by the client")

// startClose is called when reading has ended, for any reason. It queues a close frame if err is
// to be sent, and cancels all links.
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

// finishClose queues the close frame, unless startClose did, and lets the writer finish.
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

// linger gives the client time to read the close frame: closing a socket with unread input resets
// the connection, which discards it.
func (c *Conn) linger(err error) {
	var e *Error
	c.mu.Lock()
	shuttingDown := c.shuttingDown
	c.mu.Unlock()
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || c.dropped.Load() || half.CloseWrite() != nil {
		return
	}
	if !shuttingDown && !errors.As(err, &e) && !errors.Is(err, errNotAMQP) || c.net.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.net)
}

// shutdown ends the connection with a close frame, because the server is being closed.
func (c *Conn) shutdown() {
	c.mu.Lock()
	c.shuttingDown, c.suppressDetach = true, true
	c.mu.Unlock()
	c.cancel()
	c.interrupt()
}

// drop closes the connection without a close frame.
func (c *Conn) drop() {
	c.dropped.Store(true)
	c.mu.Lock()
	c.outputClosed = true
	c.mu.Unlock()
	c.cancel()
	c.net.Close()
}
