package websocket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Opcodes of frames (section 5.2).
const (
	opContinuation = 0
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10

	final  = 0x80 // of the first byte: the last frame of a message
	masked = 0x80 // of the second
)

// Status codes of a close frame (section 7.4.1).
const (
	statusNormal   = 1000
	statusProtocol = 1002
	statusType     = 1003
)

const (
	maxControl = 125 // bytes of a control frame
	maxHeader  = 14
	// controlTimeout is how long the client may take to read an answer to a
	// control frame.
	controlTimeout = 10 * time.Second
	// maxSpare is the largest buffer that is kept for the next write.
	maxSpare = 1 << 20
)

// conn is a connection that may be a WebSocket. Read is for one goroutine at a
// time, as the first bytes show what it is; Write may be called once a Read has
// returned, by one goroutine beside the one that reads.
type conn struct {
	net.Conn
	endpoint Endpoint
	input    io.LimitedReader // bounds the request
	r        *bufio.Reader    // over input
	sniffed  bool
	framed   bool // it is a WebSocket
	err      error

	left    uint64 // bytes of the frame that are still to be read
	mask    [4]byte
	at      int  // place in mask
	message bool // the last data frame was not the final one of its message

	mu     sync.Mutex // over a write
	out    []byte
	closed bool // the close frame was sent
}

// errProtocol is input that is no WebSocket traffic.
var errProtocol = errors.New("WebSocket protocol error")

// Read reads what clients send in binary messages, without regard to where one
// message ends and the next begins. It returns [io.EOF] after a close frame.
func (c *conn) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if !c.sniffed {
		if c.err = c.sniff(); c.err != nil {
			return 0, c.err
		}
		c.sniffed = true
	}
	if !c.framed || len(b) == 0 {
		return c.r.Read(b)
	}
	n, err := c.read(b)
	if errors.Is(err, io.EOF) && c.err == nil { // without a close frame
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// read reads from the frame that has begun, or the next one that isn't empty.
func (c *conn) read(b []byte) (int, error) {
	for c.left == 0 {
		if err := c.header(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(b[:min(uint64(len(b)), c.left)])
	for i := range b[:n] {
		b[i] ^= c.mask[c.at]
		c.at = (c.at + 1) & 3
	}
	c.left -= uint64(n)
	return n, err
}

// header reads the header of the next frame, and answers that if it is a
// control frame. What has come of a header stays unread if more is missing, so
// that reading can go on after a deadline.
func (c *conn) header() error {
	h, err := c.r.Peek(2)
	if err != nil {
		return err
	}
	op, fin, size, n := h[0]&0xf, h[0]&final != 0, uint64(h[1]&0x7f), 2
	switch {
	case h[0]&0x70 != 0:
		return c.fail(statusProtocol, "an extension that wasn't agreed on")
	case h[1]&masked == 0:
		return c.fail(statusProtocol, "a frame without a mask")
	case op >= opClose && (size > maxControl || !fin):
		return c.fail(statusProtocol, "a control frame that is too long")
	case size == 126:
		n = 4
	case size == 127:
		n = 10
	}
	if h, err = c.r.Peek(n + 4); err != nil {
		return err
	}
	switch n {
	case 4:
		size = uint64(binary.BigEndian.Uint16(h[2:]))
	case 10:
		size = binary.BigEndian.Uint64(h[2:])
	}
	mask := [4]byte(h[n:])
	if op >= opClose {
		return c.control(op, mask, n+4, int(size))
	}
	switch {
	case size > 1<<63-1:
		return c.fail(statusProtocol, "a frame of impossible size")
	case op != opContinuation && op != opBinary:
		return c.fail(statusType, fmt.Sprintf("a frame with opcode %d, where only binary data belong", op))
	case c.message != (op == opContinuation):
		return c.fail(statusProtocol, "a message within another")
	}
	c.left, c.mask, c.at, c.message = size, mask, 0, !fin
	_, err = c.r.Discard(n + 4)
	return err
}

// control reads a control frame, whose header has n bytes, and answers it.
func (c *conn) control(op byte, mask [4]byte, n, size int) error {
	frame, err := c.r.Peek(n + size)
	if err != nil {
		return err
	}
	payload := append([]byte(nil), frame[n:]...)
	for i := range payload {
		payload[i] ^= mask[i&3]
	}
	if _, err := c.r.Discard(n + size); err != nil {
		return err
	}
	switch op {
	case opPing:
		return c.send(opPong, payload)
	case opPong:
		return nil
	case opClose:
		if size == 1 {
			return c.fail(statusProtocol, "half a status")
		}
		c.err = io.EOF
		_ = c.sendClose(payload[:min(size, 2)]) // it is over anyway
		return c.err
	}
	return c.fail(statusProtocol, fmt.Sprintf("a control frame with opcode %d", op))
}

// fail ends reading because of what the client sent.
func (c *conn) fail(status uint16, why string) error {
	c.err = fmt.Errorf("%w: %s", errProtocol, why)
	_ = c.sendClose(binary.BigEndian.AppendUint16(nil, status)) // c.err says more
	return c.err
}

// Write sends b as one message.
func (c *conn) Write(b []byte) (int, error) {
	if !c.framed {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if err := c.write(opBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// write writes a frame; c.mu is held.
func (c *conn) write(op byte, payload []byte) error {
	b := append(c.out[:0], final|op)
	switch n := len(payload); {
	case n <= maxControl:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	b = append(b, payload...)
	if c.out = b; cap(b) > maxSpare {
		c.out = nil
	}
	_, err := c.Conn.Write(b)
	return err
}

// send writes a control frame.
func (c *conn) send(op byte, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if err := c.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	return c.write(op, payload)
}

// sendClose writes the close frame, once.
func (c *conn) sendClose(payload []byte) error {
	err := c.send(opClose, payload)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return err
}

// CloseWrite says that nothing more will be sent. Close without it ends the
// connection as a failing network would.
func (c *conn) CloseWrite() error {
	if c.framed {
		return c.sendClose(binary.BigEndian.AppendUint16(nil, statusNormal))
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
