package eventhub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
)

// dial connects to the broker. It is handed to the SDK as if it made web
// sockets, the one way to give the SDK a connection of our own.
func (s *Source) dial(ctx context.Context, url string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	address := s.broker.address()
	conn, err := func() (net.Conn, error) {
		switch {
		case s.cfg.WebSocket != nil:
			address = url
			return s.cfg.WebSocket(ctx, url)
		case s.broker.plain:
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
		config := s.cfg.TLSConfig.Clone()
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if config.ServerName == "" {
			config.ServerName = s.broker.hostname()
		}
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}()
	if err != nil {
		return nil, dialError(address, err)
	}
	return conn, nil
}

func dialError(address string, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("connect to %s: nobody we trust vouches for its certificate: add it to the trusted roots", address)
	case errors.As(err, &name):
		return fmt.Errorf("connect to %s: its certificate is for another name: use the name in the certificate", address)
	case errors.As(err, &record):
		return fmt.Errorf("connect to %s: it doesn't speak TLS: check the port, or add UseDevelopmentEmulator=true for an emulator", address)
	case errors.As(err, &op): // whose text would repeat the address
		return fmt.Errorf("connect to %s: %w", address, op.Err)
	}
	return fmt.Errorf("connect to %s: %w", address, err)
}

// wire is the connection of one receiver link, which is attached to it once.
//
// The SDK gives a link that was detached, or whose connection broke, one quick
// retry even if it is told never to retry, and would go on reading wherever
// that gets it, be it in a hub that was deleted and created again meanwhile.
// So the second connection, or the second attach on the first, is refused here.
// The SDK doesn't say either when a link stands; the first flow frame behind
// the attach does, because a receiver grants its first credit then.
type wire struct {
	dial   func(ctx context.Context, url string) (net.Conn, error)
	path   string        // the link's source address
	stands chan struct{} // closed once the link stands

	mu       sync.Mutex
	dialled  bool
	attached bool
	standing bool
	lost     error // what broke the connection, or the wish for a second link
}

func newWire(dial func(ctx context.Context, url string) (net.Conn, error), path string) *wire {
	return &wire{dial: dial, path: path, stands: make(chan struct{})}
}

var errDetached = errors.New("the broker closed the link, or sent an event that cannot be decoded")

func (w *wire) connect(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
	w.mu.Lock()
	again := w.dialled
	w.dialled = true
	w.mu.Unlock()
	if again {
		return nil, w.lose(errDetached)
	}
	conn, err := w.dial(ctx, args.Host)
	if err != nil {
		return nil, w.lose(err)
	}
	return &wireConn{Conn: conn, wire: w}, nil
}

// lose records the first reason why the link is no more, and returns it.
func (w *wire) lose(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil && !errors.Is(err, net.ErrClosed) {
		w.lost = err
	}
	return err
}

// cause is that reason, nil if there is none.
func (w *wire) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// up tells whether the link stands.
func (w *wire) up() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.standing
}

// permit judges a frame before it is sent.
func (w *wire) permit(frame []byte) error {
	if performative(frame) != attachFrame || !bytes.Contains(frame, []byte(w.path)) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attached {
		if w.lost == nil {
			w.lost = errDetached
		}
		return errDetached
	}
	w.attached = true
	return nil
}

// sent looks at a frame after it was sent.
func (w *wire) sent(frame []byte) {
	if performative(frame) != flowFrame {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attached && !w.standing {
		w.standing = true
		close(w.stands)
	}
}

// wireConn shows the wire what goes over it. The SDK writes one frame at a time.
type wireConn struct {
	net.Conn
	wire *wire
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.wire.lose(lossOf(err))
	}
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	if err := c.wire.permit(p); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.wire.lose(lossOf(err))
		return n, err
	}
	c.wire.sent(p)
	return n, nil
}

// lossOf says what a failure to read or write means.
func lossOf(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("connection lost: the broker ended it")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("connection lost: the broker fell silent")
	}
	return fmt.Errorf("connection lost: %w", err)
}

// Descriptors of performatives (AMQP 1.0, part 2, section 2.7).
const (
	attachFrame = 0x12
	flowFrame   = 0x13
)

// performative is the descriptor of what a frame carries, 0 if it is no AMQP
// frame or an empty one. A frame begins with its size (four bytes), the offset
// of its body in words, its type and its channel (two bytes); the body with
// its descriptor, a small unsigned long (section 2.3).
func performative(frame []byte) byte {
	const sasl = 1
	if len(frame) < 8 || frame[5] == sasl {
		return 0
	}
	at := 4 * int(frame[4])
	if len(frame) < at+3 || frame[at] != 0 || frame[at+1] != 0x53 {
		return 0
	}
	return frame[at+2]
}
