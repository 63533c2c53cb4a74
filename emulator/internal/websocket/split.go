package websocket

import (
	"bufio"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// maxTarget bounds the first bytes that are read, which end with a request's target.
const maxTarget = 512

// Split separates the connections of l, as Azure does on its HTTPS port: requests accepts
// those that open with an HTTP request for another resource than the WebSocket at path,
// streams all others. A connection may take firstBytes until it shows what it is. Once both are
// closed, l and the connections that neither has accepted are closed, too.
func Split(l net.Listener, path string, firstBytes time.Duration) (streams, requests net.Listener) {
	s := &splitter{Listener: l, path: path, firstBytes: firstBytes, open: 2, failed: make(chan error), closed: make(chan struct{}), pending: make(map[net.Conn]struct{})}
	a, b := s.branch(), s.branch()
	s.running.Go(func() { s.accept(a, b) })
	return a, b
}

// splitter accepts connections, and hands each to one of its branches.
type splitter struct {
	net.Listener
	path       string // of the WebSocket
	firstBytes time.Duration
	failed     chan error
	closed     chan struct{}
	running    sync.WaitGroup

	mu      sync.Mutex
	open    int                   // branches that aren't closed
	pending map[net.Conn]struct{} // connections that no branch has accepted
}

func (s *splitter) accept(streams, requests *branch) {
	for {
		nc, err := s.Listener.Accept()
		if err != nil {
			select {
			case s.failed <- err:
				continue
			case <-s.closed:
				return
			}
		}
		if !s.keep(nc) {
			nc.Close()
			return
		}
		s.running.Go(func() {
			defer s.forget(nc)
			s.route(nc, streams, requests)
		})
	}
}

// keep has close close the connection until forget is called; false if nothing is accepted
// any more.
func (s *splitter) keep(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[nc] = struct{}{}
	return s.open > 0
}

func (s *splitter) forget(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, nc)
}

// route reads the first bytes of a connection, and waits until a branch accepts it.
func (s *splitter) route(nc net.Conn, streams, requests *branch) {
	_ = nc.SetDeadline(time.Now().Add(s.firstBytes)) // if it fails, so does Peek
	c := &peeked{Conn: nc, r: bufio.NewReaderSize(nc, maxTarget)}
	to := requests
	first, err := c.r.Peek(4)
	if err != nil {
		nc.Close()
		return
	}
	switch string(first) {
	case "GET ":
		target, err := requestTarget(c.r)
		if err != nil {
			nc.Close()
			return
		}
		if u, err := url.ParseRequestURI(target); err == nil && strings.EqualFold(strings.TrimSuffix(u.Path, "/"), s.path) {
			to = streams
		}
	case "PUT ", "POST", "DELE", "HEAD", "OPTI", "PATC":
	default:
		to = streams
	}
	_ = nc.SetDeadline(time.Time{})
	select {
	case to.conns <- c:
	case <-to.done:
		nc.Close()
	}
}

// requestTarget peeks at what a GET request is for: a path, or a whole URL, as the client for
// Java writes it. It returns "" if that is longer than any URL of the WebSocket.
func requestTarget(r *bufio.Reader) (string, error) {
	for n := len("GET "); n < maxTarget; n++ {
		line, err := r.Peek(n + 1)
		if err != nil {
			return "", err
		}
		if line[n] == ' ' {
			return string(line[len("GET "):n]), nil
		}
	}
	return "", nil
}

// branch is one of the two listeners that share a splitter.
type branch struct {
	*splitter
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (s *splitter) branch() *branch {
	return &branch{splitter: s, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case err := <-b.failed:
		return nil, err
	case <-b.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. The second branch's waits until nothing runs for the splitter.
func (b *branch) Close() (err error) {
	b.once.Do(func() {
		close(b.done)
		err = b.leave()
	})
	return err
}

func (s *splitter) leave() error {
	s.mu.Lock()
	s.open--
	last := s.open == 0
	if last {
		close(s.closed)
		for nc := range s.pending {
			nc.Close()
		}
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	err := s.Listener.Close()
	s.running.Wait()
	return err
}

// peeked is a connection whose first bytes have been read.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (c *peeked) Read(b []byte) (int, error) { return c.r.Read(b) }

// CloseWrite is that of the connection.
func (c *peeked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
