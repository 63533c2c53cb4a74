package amqp

import (
	"io"
	"testing"
	"time"
)

// Whatever a client sends, the server neither panics nor hangs. The data are bytes of a stream, or, for mutations that get further, the
// bodies of frames, each preceded by its length and channel.
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
		&ending{desc: descEnd},
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

func framesOf(bodies []byte) (stream []byte) {
	for len(bodies) > 2 {
		n := min(int(bodies[0]), len(bodies)-2)
		b, at := beginFrame(stream, frameAMQP, uint16(bodies[1]))
		stream = endFrame(append(b, bodies[2:2+n]...), at)
		bodies = bodies[2+n:]
	}
	return stream
}
