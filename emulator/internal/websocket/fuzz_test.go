package websocket

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// replay is a connection from which fixed input is read; what is written to it
// is counted.
type replay struct {
	net.Conn
	in      *bytes.Reader
	written int
}

func (r *replay) Read(b []byte) (int, error)       { return r.in.Read(b) }
func (r *replay) Write(b []byte) (int, error)      { r.written += len(b); return len(b), nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
func (r *replay) Close() error                     { return nil }

// Whatever a client sends, reading ends, yields no more than was sent, and is
// answered with no more than that, apart from a refusal or a status.
func FuzzRead(f *testing.F) {
	f.Add([]byte(request+"\r\n"), frame(final|opBinary, []byte("hello")))
	f.Add([]byte(request+"\r\n"), append(frame(opBinary, []byte("a")), frame(final|opContinuation, bytes.Repeat([]byte("b"), 300))...))
	f.Add([]byte(request+"\r\n"), append(frame(final|opPing, []byte("ping")), frame(final|opClose, []byte("\x03\xe8"))...))
	f.Add([]byte(request+"Origin: http://elsewhere\r\n\r\n"), []byte{})
	f.Add([]byte("AMQP\x00\x01\x00\x00"), []byte("plain"))
	f.Fuzz(func(t *testing.T, head, body []byte) {
		nc := &replay{in: bytes.NewReader(append(append([]byte{}, head...), body...))}
		c := newConn(nc, endpoint)
		n, err := io.Copy(io.Discard, c)
		if n > int64(len(head)+len(body)) {
			t.Errorf("%d bytes read of %d", n, len(head)+len(body))
		}
		if nc.written > len(head)+len(body)+1000 {
			t.Errorf("%d bytes written for %d", nc.written, len(head)+len(body))
		}
		if m, again := c.Read(make([]byte, 1)); m != 0 || again == nil {
			t.Errorf("after %v: %d bytes, %v", err, m, again)
		}
	})
}
