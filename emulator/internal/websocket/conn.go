package websocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/coder/websocket"
)

// closeTimeout is how long CloseWrite waits for the client's close frame.
const closeTimeout = time.Second

// conn is a connection that may be a WebSocket. Read is for one goroutine at a
// time, because it opens the WebSocket. Write may be called once a Read has
// returned, by one goroutine besides the one that reads.
//
// [websocket.NetConn] isn't used: it closes the connection when a read deadline
// passes, and the AMQP server, which interrupts its reader by a deadline, still
// has to send the close frame then. Here deadlines are those of the network
// connection, and a WebSocket can be written to after its read deadline.
type conn struct {
	net.Conn
	endpoint Endpoint
	input    io.LimitedReader // bounds the HTTP request
	r        *bufio.Reader    // reads from input
	opened   bool             // the first bytes have been read, a request answered
	err      error            // why reading ended

	ws      *websocket.Conn // nil if it isn't a WebSocket
	message io.Reader       // what is left of the current message, nil between messages
}

func newConn(nc net.Conn, e Endpoint) *conn {
	c := &conn{Conn: nc, endpoint: e, input: io.LimitedReader{R: nc}}
	c.r = bufio.NewReader(&c.input)
	return c
}

// errNotBinary is a client that sent a text message.
var errNotBinary = errors.New("WebSocket: the client sent a text message, only binary ones are allowed")

// Read reads what clients send in binary messages, as one stream of bytes. It
// returns [io.EOF] after a close frame.
func (c *conn) Read(b []byte) (int, error) {
	if !c.opened && c.err == nil {
		c.err = c.open()
		c.opened = true
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.ws == nil || len(b) == 0 {
		return c.r.Read(b)
	}
	for {
		if c.message == nil {
			if c.err = c.nextMessage(); c.err != nil {
				return 0, c.err
			}
		}
		n, err := c.message.Read(b)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			c.err = err
			return n, err
		}
	}
}

func (c *conn) nextMessage() error {
	kind, r, err := c.ws.Reader(context.Background())
	switch {
	case websocket.CloseStatus(err) != -1:
		return io.EOF
	case errors.Is(err, io.EOF): // without a close frame
		return fmt.Errorf("WebSocket: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("WebSocket: %w", err)
	case kind != websocket.MessageBinary:
		_ = c.ws.Close(websocket.StatusUnsupportedData, "only binary messages are allowed") // errNotBinary says more
		return errNotBinary
	}
	c.message = r
	return nil
}

// Write sends b as one message.
func (c *conn) Write(b []byte) (int, error) {
	if c.ws == nil {
		return c.Conn.Write(b)
	}
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	// The deadline was for this message. Pongs and the close frame, which the
	// library sends with a timeout of its own, must not fail because of it later.
	return len(b), c.SetWriteDeadline(time.Time{})
}

// CloseWrite announces that nothing more will be sent. On a WebSocket it performs
// the close handshake and closes the connection; it must not be called during a
// Read. Close without it sends no close frame, like a network failure.
func (c *conn) CloseWrite() error {
	if c.ws != nil {
		if err := c.SetReadDeadline(time.Now().Add(closeTimeout)); err != nil {
			return err
		}
		return c.ws.Close(websocket.StatusNormalClosure, "")
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
