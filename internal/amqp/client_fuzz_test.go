package amqp

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"
)

// Whatever a server sends, the client neither panics nor hangs, and what it keeps and answers is
// bounded. The data are bytes of a stream after the handshake, or, for mutations that get further,
// the bodies of frames, each preceded by its length and channel.
func FuzzClient(f *testing.F) {
	const name = "link"
	frames := []performative{
		&begin{remoteChannel: 0, hasRemote: true, incomingWindow: 10},
		&attach{name: name, source: &terminus{address: "n"}, initialCount: 3},
		&transfer{deliveryID: 0, hasID: true, more: true},
		&transfer{},
		&flow{hasHandle: true, deliveryCount: 9, hasCount: true, echo: true},
		&flow{echo: true},
		&disposition{first: 0, last: 4},
		&detach{closed: true, err: Errorf(CondStolen, "x")},
		&endOrClose{desc: descEnd},
		&endOrClose{desc: descClose},
	}
	var stream, bodies []byte
	for _, p := range frames {
		stream = append(stream, encoded(p)...)
		body := p.encode(nil)
		bodies = append(append(bodies, byte(len(body)), 0), body...)
		f.Add(true, stream)
		f.Add(false, bodies)
	}
	f.Add(true, []byte{0, 0, 0, 8, 2, 0, 0, 0})
	b, at := beginFrame(headerSASL[:8:8], frameSASL, 0)
	b = endFrame((&saslMechanisms{names: Mechanisms}).encode(b), at)
	b, at = beginFrame(b, frameSASL, 0)
	b = endFrame((&saslOutcome{}).encode(b), at)
	greeting := slices.Concat(b, headerAMQP[:], encoded(&open{maxFrameSize: 512}))
	f.Fuzz(func(t *testing.T, raw bool, data []byte) {
		if !raw {
			data = framesOf(data)
		}
		nc := &gated{replay: replay{in: bytes.NewReader(greeting)}, rest: data, gate: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := NewClient(ctx, nc, &ClientConfig{MaxFrameSize: 1024, MaxMessageSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.begin()
		if err != nil {
			t.Fatal(err)
		}
		r := new(Receiver)
		if err := s.attach(r, &attach{receiver: true, source: &terminus{}}); err != nil {
			t.Fatal(err)
		}
		r.name = name // the one in the data; nothing reads it before the gate opens
		r.Flow(5)
		close(nc.gate)
		select {
		case <-c.Done():
		case <-ctx.Done():
			t.Fatal("the connection doesn't end")
		}
		if n := len(r.Take(nil)); n > 5 {
			t.Errorf("%d messages for a credit of 5", n)
		}
		c.Close(ctx)
		if ctx.Err() != nil {
			t.Fatal("the connection doesn't end")
		}
		if n, limit := nc.written.Load(), int64(2000+100*len(data)); n > limit {
			t.Errorf("%d bytes answer %d", n, len(data))
		}
	})
}

// gated reads the rest of its input once the gate is open.
type gated struct {
	replay
	gate chan struct{}
	rest []byte
	open bool
}

func (g *gated) Read(b []byte) (int, error) {
	if g.in.Len() == 0 && !g.open {
		<-g.gate
		g.in.Reset(g.rest)
		g.open = true
	}
	return g.in.Read(b)
}
