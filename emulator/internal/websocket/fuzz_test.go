package websocket

import (
	"bytes"
	"encoding/binary"
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

// Whatever a client sends, reading ends, yields no more than was sent, and is
// answered with no more than that, but for a refusal or a status.
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

// What a client sends comes out as it was, into however many frames of however
// many messages it is cut and with pings between; and what is written back is
// one message that holds the same.
func FuzzPayload(f *testing.F) {
	f.Add([]byte("hello"), uint16(1), []byte{2, 0x80, 0})
	f.Add([]byte("0123456789"), uint16(7000), []byte{})
	f.Add([]byte("0123456789"), uint16(20), []byte{0, 0x41, 0x80, 3})
	f.Fuzz(func(t *testing.T, data []byte, times uint16, cuts []byte) {
		data = bytes.Repeat(data, int(times)%(100_000/max(len(data), 1)+1))
		in := []byte(request + "\r\n")
		rest, op := data, byte(opBinary)
		for _, cut := range cuts { // 0x80 ends a message, 0x40 adds a ping
			n := min(int(cut&0x3f), len(rest))
			end := cut & final
			in, rest = append(in, frame(end|op, rest[:n])...), rest[n:]
			if op = opContinuation; end != 0 {
				op = opBinary
			}
			if cut&0x40 != 0 {
				in = append(in, frame(final|opPing, []byte{cut})...)
			}
		}
		in = append(in, frame(final|op, rest)...)
		in = append(in, frame(final|opClose, nil)...)

		nc := &replay{in: bytes.NewReader(in)}
		c := newConn(nc, endpoint)
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%x cut by %x became %x, %v", data, cuts, got, err)
		}

		back := &capture{}
		echo := &conn{Conn: back, framed: true}
		if n, err := echo.Write(data); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
		if got := onlyFrame(t, back.out); !bytes.Equal(got, data) {
			t.Fatalf("%d bytes were written as %d", len(data), len(got))
		}
	})
}

// capture keeps what is written.
type capture struct {
	replay
	out []byte
}

func (c *capture) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	return len(b), nil
}

// onlyFrame takes apart the one unmasked, final, binary frame that b is.
func onlyFrame(t *testing.T, b []byte) []byte {
	t.Helper()
	if len(b) < 2 || b[0] != final|opBinary {
		t.Fatalf("not a final binary frame: %.10x", b)
	}
	size, head := uint64(b[1]), 2
	switch {
	case size == 126 && len(b) >= 4:
		size, head = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		size, head = binary.BigEndian.Uint64(b[2:]), 10
	}
	if uint64(len(b)-head) != size {
		t.Fatalf("a frame of %d bytes is followed by %d", size, len(b)-head)
	}
	return b[head:]
}
