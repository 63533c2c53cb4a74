package amqp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Whatever a client sends, the server neither panics nor hangs. The data are bytes of a stream,
// or, for mutations that get further, the bodies of frames, each preceded by its length and
// channel.
func FuzzConnection(f *testing.F) {
	var stream, bodies []byte
	for _, p := range []performative{
		&begin{incomingWindow: 10},
		&attach{name: "in", target: &terminus{address: "n"}},
		&attach{name: "out", handle: 1, receiver: true, source: &terminus{address: "n"}},
		&transfer{deliveryID: 0, hasID: true, more: true},
		&transfer{},
		credit(1, 0, 5),
		&disposition{receiver: true, first: 0, last: 4},
		&flow{hasIncomingID: true, incomingWindow: 1, echo: true},
		&detach{handle: 1, closed: true},
		&endOrClose{desc: descEnd},
	} {
		stream = append(stream, encoded(p)...)
		body := p.encode(nil)
		bodies = append(append(bodies, byte(len(body)), 0), body...)
		f.Add(true, stream)
		f.Add(false, bodies)
	}
	f.Add(true, []byte{0, 0, 0, 8, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw bool, data []byte) {
		if !raw {
			data = framesOf(data)
		}
		target, source := &accepting{}, count(3)
		peer := &testPeer{incoming: target.open, outgoing: source.open, closed: make(chan struct{})}
		srv := NewServer(func(*Conn) Peer { return peer }, &Config{MaxSessions: 4, MaxLinks: 8, MaxMessageSize: 1000, MaxBuffered: 4000, Credit: 10})
		near, far := pipe()
		srv.start(far)
		go io.Copy(io.Discard, near)
		near.Write(append(headerAMQP[:], append(encoded(&open{containerID: "c", maxFrameSize: 512}), data...)...))
		near.Close()
		select {
		case <-peer.closed:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection doesn't end")
		}
		srv.Close()
	})
}

// Whatever the handshake, only an authenticated client can attach a link, and the answers are
// short.
func FuzzHandshake(f *testing.F) {
	const proof = "\x00user\x00password"
	proper := slices.Concat(headerSASL[:], saslInitFrame("PLAIN", []byte(proof)), headerAMQP[:])
	f.Add(proper)
	for _, init := range [][]byte{saslInitFrame("PLAIN", nil), saslInitFrame("ANONYMOUS", []byte("x")), saslInitFrame("SCRAM", nil)} {
		f.Add(slices.Concat(headerSASL[:], init, headerAMQP[:]))
	}
	f.Add(headerAMQP[:])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(slices.Concat(headerSASL[:], []byte{0, 0, 0, 12, 2, 1, 0, 0, 0, 0x53, 0x42, 0x45}))
	attaching := slices.Concat(encoded(&open{containerID: "c", maxFrameSize: 512}), encoded(&begin{incomingWindow: 1}),
		encoded(&attach{name: "in", target: &terminus{address: "n"}}))
	f.Fuzz(func(t *testing.T, introduction []byte) {
		var proved, attached atomic.Bool
		peer := &testPeer{
			auth: func(mechanism string, response []byte) error {
				if mechanism != "PLAIN" || string(response) != proof {
					return errors.New("who?")
				}
				proved.Store(true)
				return nil
			},
			incoming: func(*Incoming) (func(context.Context) error, error) {
				attached.Store(true)
				return nil, Errorf(CondNotFound, "no targets")
			},
			closed: make(chan struct{}),
		}
		srv := NewServer(func(*Conn) Peer { return peer }, nil)
		nc := &replay{in: bytes.NewReader(slices.Concat(introduction, attaching))}
		srv.start(nc)
		select {
		case <-peer.closed:
		case <-time.After(20 * time.Second):
			t.Fatal("the connection doesn't end")
		}
		srv.Close()
		if attached.Load() && !proved.Load() {
			t.Fatalf("%q attaches a link", introduction)
		}
		if !attached.Load() && bytes.Equal(introduction, proper) {
			t.Fatal("a proper client attaches no link")
		}
		if n := nc.written.Load(); n > 2000 {
			t.Fatalf("%d bytes answer %q", n, introduction)
		}
	})
}

// replay is a connection from which fixed input is read; what is written to it is counted.
type replay struct {
	net.Conn
	in      *bytes.Reader
	written atomic.Int64
}

func (r *replay) Read(b []byte) (int, error) { return r.in.Read(b) }

func (r *replay) Write(b []byte) (int, error) {
	r.written.Add(int64(len(b)))
	return len(b), nil
}

func (r *replay) Close() error                     { return nil }
func (r *replay) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *replay) SetDeadline(time.Time) error      { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }

func framesOf(bodies []byte) (stream []byte) {
	for len(bodies) > 2 {
		n := min(int(bodies[0]), len(bodies)-2)
		b, at := beginFrame(stream, frameAMQP, uint16(bodies[1]))
		stream = endFrame(append(b, bodies[2:2+n]...), at)
		bodies = bodies[2+n:]
	}
	return stream
}
