package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config holds the settings of a [Server]. The zero value works.
type Config struct {
	// ContainerID names the server to its clients. Default "sluice".
	ContainerID string
	// MaxFrameSize is the largest frame accepted, in bytes. Default 64 KiB, as Azure's.
	MaxFrameSize int
	// MaxMessageSize is the largest message accepted, in bytes. Default 1 MiB, as Event Hubs'.
	MaxMessageSize int
	// MaxBuffered bounds the buffers of messages received but not handled yet of a connection, in
	// bytes; beyond it, the connection isn't read. Default 16 MiB.
	MaxBuffered int
	// MaxSessions and MaxLinks bound what one connection may open. Defaults 1,000 and 5,000.
	MaxSessions, MaxLinks int
	// MaxConnections bounds the connections open at once; those beyond it are closed at once.
	// Default 10,000.
	MaxConnections int
	// Credit is the link credit that a client gets: how many messages may be in flight on one
	// link. Default 1,000.
	Credit int
	// IdleTimeout is how long a connection may be silent before it is closed. The idle-time-out
	// sent to clients is half of it (section 2.4.5). Default 4 minutes.
	IdleTimeout time.Duration
	// Quota is how many connections may be open; those beyond it are closed with an error.
	// Default: MaxConnections alone.
	Quota int
	// AuthTimeout is how long a client may take to prove a right, which the [Peer] reports by
	// [Conn.Trust]; until then, the server keeps little for the connection. Default: it need not
	// prove one.
	AuthTimeout time.Duration
	// IdleLink is how long a link may be idle before it is detached, IdleConnection how long a
	// connection may have no links, as idle.go says. IdleOrigin is the kind of link in the
	// error, such as AmqpEventHub. Default: no limit.
	IdleLink, IdleConnection time.Duration
	IdleOrigin               string
	// WriteTimeout is how long one write to a client may take. Default 1 minute.
	WriteTimeout time.Duration
	// Log receives the end of each connection, at debug level, and errors of the server itself.
	// Default: no log.
	Log *slog.Logger
}

func (cfg *Config) withDefaults() Config {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	set := func(v *int, to int) {
		if *v <= 0 {
			*v = to
		}
	}
	set(&c.MaxFrameSize, 64<<10)
	c.MaxFrameSize = max(c.MaxFrameSize, minFrameSize)
	set(&c.MaxMessageSize, 1<<20)
	set(&c.MaxBuffered, 16<<20)
	set(&c.MaxSessions, 1000)
	c.MaxSessions = min(c.MaxSessions, 1<<16)
	set(&c.MaxLinks, 5000)
	set(&c.MaxConnections, 10000)
	set(&c.Credit, 1000)
	if c.ContainerID == "" {
		c.ContainerID = "sluice"
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 4 * time.Minute
	}
	if c.WriteTimeout <= 0 {
		c.WriteTimeout = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Peer is the server's side of one connection: it decides who may connect and which node a link is
// attached to. Its methods are called one at a time, by the goroutine that reads the connection,
// and must not block for long.
type Peer interface {
	// Authenticate checks the SASL response; mechanism "" is a client that skipped SASL. An error
	// refuses the connection.
	Authenticate(mechanism string, response []byte) error
	// Incoming opens the target that a client wants to send to. The function it returns runs in
	// the link's own goroutine. When it returns, the link is detached: without an error after nil,
	// ErrLinkClosed or a cancelled context, otherwise with the function's error. Its context ends
	// when the client detaches the link or disconnects. An error from Incoming itself refuses the
	// link.
	Incoming(*Incoming) (func(context.Context) error, error)
	// Outgoing opens the source that a client wants to receive from; the rest is as for Incoming.
	Outgoing(*Outgoing) (func(context.Context) error, error)
	// Closed is called once, when the connection has ended and all its links' functions have
	// returned.
	Closed()
}

// Mechanisms are the SASL mechanisms on offer, in order of preference.
var Mechanisms = []Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}

// Server accepts AMQP connections. All its methods may be called concurrently.
type Server struct {
	cfg     Config
	newPeer func(*Conn) Peer

	received, sent atomic.Int64 // bytes
	open           atomic.Int64 // connections whose open frame was accepted

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	closed    bool
	closing   chan struct{} // closed with the server
	wg        sync.WaitGroup
}

// NewServer returns a server that calls newPeer once for every connection.
func NewServer(newPeer func(*Conn) Peer, cfg *Config) *Server {
	return &Server{
		cfg: cfg.withDefaults(), newPeer: newPeer,
		listeners: make(map[net.Listener]struct{}), conns: make(map[*Conn]struct{}), closing: make(chan struct{}),
	}
}

// ErrServerClosed is what [Server.Serve] returns after [Server.Close].
var ErrServerClosed = errors.New("amqp: server closed")

// Serve accepts connections from l until the server is closed or accepting fails. It closes l.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return ErrServerClosed
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer l.Close()
	for {
		nc, err := l.Accept()
		if err == nil {
			s.start(nc)
			continue
		}
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return ErrServerClosed
		}
		var ne net.Error
		if !errors.As(err, &ne) || errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept a connection: %w", err)
		}
		// Out of file descriptors, or the client disconnected before it was accepted: both are
		// temporary.
		s.cfg.Log.Warn("accept failed, retrying", "error", err)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.closing:
		}
	}
}

func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.cfg.MaxConnections {
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c.serve()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
}

func (s *Server) each(f func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c)
	}
}

// Drop closes all connections without a close frame, as a network failure would, and returns how
// many there were. New ones are still accepted.
func (s *Server) Drop() (n int) {
	s.each(func(c *Conn) { c.drop(); n++ })
	return n
}

// Connections returns how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close stops accepting, cancels the contexts of all links and waits for their functions, sends
// every client a close frame, and returns when all connections have ended.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.each((*Conn).shutdown)
	s.wg.Wait()
}
