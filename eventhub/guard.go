package eventhub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-go/sluice/internal/websocketdial"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

// dial connects to the broker. The SDK gets it as its function for WebSockets, the
// only way to give the SDK a connection of our own.
func (s *Source) dial(ctx context.Context, url string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	address := s.broker.address()
	conn, err := func() (net.Conn, error) {
		switch {
		case s.cfg.WebSocket != nil:
			address = url
			return s.cfg.WebSocket(ctx, url)
		case s.cfg.OverWebSocket:
			address = url
			if s.broker.plain {
				address = strings.Replace(url, "wss://", "ws://", 1)
			}
			return websocketdial.Dial(ctx, address, s.cfg.TLSConfig, s.cfg.Proxy)
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
		return fmt.Errorf("connect to %s: no trusted root has signed its certificate: add the certificate or its issuer to the trusted roots", address)
	case errors.As(err, &name):
		return fmt.Errorf("connect to %s: its certificate is for another name: use the name in the certificate", address)
	case errors.As(err, &record):
		return fmt.Errorf("connect to %s: it does not use TLS: check the port, or add UseDevelopmentEmulator=true for an emulator", address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("connect to %s: %w: check the address, and whether the server runs", address, syscall.ECONNREFUSED)
	case errors.As(err, &op): // whose text would repeat the address
		return fmt.Errorf("connect to %s: %w", address, op.Err)
	}
	return fmt.Errorf("connect to %s: %w", address, err)
}

// connectionGuard watches the connection of one receiver link, and lets the SDK
// attach the link only once.
//
// The SDK retries a link once, quickly, after it was detached or its connection
// broke, even with retries turned off. It would then continue on whatever hub it
// reaches, also on one that was recreated meanwhile. So the guard refuses a second
// connection, and a second attach on the first one. The SDK also does not report
// when a link is attached. The first flow frame after the attach shows it, because
// a receiver grants its first credit then.
type connectionGuard struct {
	dial       func(ctx context.Context, url string) (net.Conn, error)
	path       string        // the source address of the link
	attachedCh chan struct{} // closed once the link is attached
	intake     *intake
	incoming   detaches

	mu       sync.Mutex
	dialled  bool
	attached bool
	linkUp   bool
	err      error       // the first failure: of the connection, or a second attach
	detach   *amqp.Error // that of the broker's last detach; nil if it had none
	decode   string      // why the SDK could not decode an event; empty if it could
}

func newConnectionGuard(dial func(ctx context.Context, url string) (net.Conn, error), path string, bytes *intake) *connectionGuard {
	return &connectionGuard{dial: dial, path: path, attachedCh: make(chan struct{}), intake: bytes}
}

var errDetached = errors.New("the broker closed the link")

func (w *connectionGuard) connect(ctx context.Context, args azeventhubs.WebSocketConnParams) (net.Conn, error) {
	w.mu.Lock()
	again := w.dialled
	w.dialled = true
	w.mu.Unlock()
	if again {
		return nil, w.fail(errDetached)
	}
	conn, err := w.dial(ctx, args.Host)
	if err != nil {
		return nil, w.fail(err)
	}
	return &guardedConn{pacedConn: pacedConn{Conn: conn, intake: w.intake}, guard: w}, nil
}

// fail records the first failure, and returns err.
func (w *connectionGuard) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && !errors.Is(err, net.ErrClosed) {
		w.err = err
	}
	return err
}

// cause returns the first failure, nil if there is none.
func (w *connectionGuard) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// refusal returns why the broker detached the link that the SDK then tried to attach again,
// nil if that did not happen. The SDK returns the error of the second attempt alone.
func (w *connectionGuard) refusal() *amqp.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detach == nil || !errors.Is(w.err, errDetached) {
		return nil
	}
	return w.detach
}

// received looks for detaches in what came from the broker. The goroutine that reads the
// connection calls it.
func (w *connectionGuard) received(b []byte) {
	w.incoming.scan(b, func(err *amqp.Error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.detach = err
	})
}

// isUp reports whether the link is attached.
func (w *connectionGuard) isUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.linkUp
}

// undecodable returns why the SDK could not decode an event, empty if it could.
func (w *connectionGuard) undecodable() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.decode
}

// checkFrame refuses a second attach of the link, before it is sent. It also learns from
// a detach that the SDK could not decode an event: the SDK reports that nowhere else.
func (w *connectionGuard) checkFrame(frame []byte) error {
	switch kind := performative(frame); {
	case kind == detachFrame:
		if reason := decodeError(frame); reason != "" {
			w.mu.Lock()
			w.decode = cmp.Or(w.decode, reason)
			w.mu.Unlock()
		}
		return nil
	case kind != attachFrame || !bytes.Contains(frame, []byte(w.path)):
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attached {
		if w.err == nil {
			w.err = errDetached
		}
		return errDetached
	}
	w.attached = true
	return nil
}

// frameSent detects that the link is attached, after a frame was sent.
func (w *connectionGuard) frameSent(frame []byte) {
	if performative(frame) != flowFrame {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attached && !w.linkUp {
		w.linkUp = true
		close(w.attachedCh)
	}
}

// decodeError returns the description of the error amqp:internal-error in a detach
// frame, which the SDK sends when it could not decode an event.
func decodeError(frame []byte) string {
	_, rest, found := bytes.Cut(frame, []byte(amqp.ErrCondInternalError))
	switch {
	case !found:
		return ""
	case len(rest) >= 2 && rest[0] == 0xa1 && len(rest) >= 2+int(rest[1]): // a string of up to 255 bytes
		return string(rest[2 : 2+int(rest[1])])
	}
	return "unknown encoding"
}

// guardedConn reports reads and writes to the guard. The SDK writes one frame at a time.
type guardedConn struct {
	pacedConn
	guard *connectionGuard
}

// Read implements [net.Conn].
func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.pacedConn.Read(p)
	c.guard.received(p[:n])
	if err != nil {
		c.guard.fail(connectionError(err))
	}
	return n, err
}

// Write implements [net.Conn].
func (c *guardedConn) Write(p []byte) (int, error) {
	if err := c.guard.checkFrame(p); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.guard.fail(connectionError(err))
		return n, err
	}
	c.guard.frameSent(p)
	return n, nil
}

var errClosedByBroker = errors.New("connection lost: the broker closed it")

// connectionError describes a failed read or write.
func connectionError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errClosedByBroker
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("connection lost: the broker stopped answering")
	}
	return fmt.Errorf("connection lost: %w", err)
}

// Descriptors of performatives: AMQP 1.0, part 2 (transport), section 2.7.
const (
	attachFrame = 0x12
	flowFrame   = 0x13
	detachFrame = 0x16
)

// performative returns the descriptor of a frame's performative, 0 for an empty
// frame and for one that is not AMQP. A frame begins with its size (four bytes),
// the offset of its body in four-byte words, its type and its channel (two bytes).
// The body begins with the descriptor, a small unsigned long (section 2.3).
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
