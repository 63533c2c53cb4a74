package amqp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of the state machine run in a synctest bubble: time is virtual, and synctest.Wait
// returns when all goroutines are blocked. The client is a pipe, and a goroutine that collects what
// the server sends.

// testPeer is a [Peer] made of functions.
type testPeer struct {
	auth     func(mechanism string, response []byte) error
	incoming func(*Incoming) (func(context.Context) error, error)
	outgoing func(*Outgoing) (func(context.Context) error, error)
	closed   chan struct{}
}

func (p *testPeer) Authenticate(mechanism string, response []byte) error {
	if p.auth == nil {
		return nil
	}
	return p.auth(mechanism, response)
}

func (p *testPeer) Incoming(l *Incoming) (func(context.Context) error, error) {
	if p.incoming == nil {
		return nil, Errorf(CondNotFound, "no targets")
	}
	return p.incoming(l)
}

func (p *testPeer) Outgoing(l *Outgoing) (func(context.Context) error, error) {
	if p.outgoing == nil {
		return nil, Errorf(CondNotFound, "no sources")
	}
	return p.outgoing(l)
}

func (p *testPeer) Closed() { close(p.closed) }

// testClient is the client's end of a connection, driven by the test.
type testClient struct {
	t    testing.TB
	srv  *Server
	peer *testPeer
	nc   net.Conn
	out  []byte
	hold chan struct{} // if set, reading stops until it is closed

	mu   sync.Mutex
	got  []received
	beat int
	err  error // of reading
}

type received struct {
	channel uint16
	p       any
	payload []byte
	raw     []byte // performative and payload, encoded
}

// newTestClient connects a client; no bytes have been exchanged yet.
func newTestClient(t testing.TB, peer *testPeer, cfg *Config) *testClient {
	peer.closed = make(chan struct{})
	srv := NewServer(func(*Conn) Peer { return peer }, cfg)
	near, far := pipe()
	srv.start(far)
	t.Cleanup(func() {
		near.Close()
		srv.Close()
		select {
		case <-peer.closed:
		default:
			t.Error("Closed wasn't called")
		}
	})
	return &testClient{t: t, srv: srv, peer: peer, nc: near}
}

// opened connects a client and exchanges headers and open frames.
func opened(t testing.TB, peer *testPeer, cfg *Config, o *open) *testClient {
	t.Helper()
	c := newTestClient(t, peer, cfg)
	go c.nc.Write(headerAMQP[:])
	var h [8]byte
	if _, err := io.ReadFull(c.nc, h[:]); err != nil || h != headerAMQP {
		t.Fatalf("header % x, %v", h, err)
	}
	go c.read()
	if o == nil {
		o = &open{containerID: "test", maxFrameSize: 64 << 10}
	}
	c.send(0, o)
	expect[*open](c)
	return c
}

// read collects what the server sends.
func (c *testClient) read() {
	fr := newFrameReader(c.nc, func() int { return 1 << 20 })
	for {
		f, err := fr.next()
		if c.hold != nil {
			<-c.hold
		}
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		if len(f.body) == 0 {
			c.beat++
		} else {
			p, payload, err := decodeFrameBody(f.body)
			if err != nil {
				c.t.Errorf("the server sent % x: %v", f.body[:min(len(f.body), 40)], err)
			}
			if tr, ok := p.(*transfer); ok {
				tr.tag = bytes.Clone(tr.tag) // valid only as long as the frame
			}
			c.got = append(c.got, received{f.channel, p, append([]byte{}, payload...), append([]byte{}, f.body...)})
		}
		c.mu.Unlock()
	}
}

// queue encodes a frame for [testClient.flush].
func (c *testClient) queue(channel uint16, p performative, payload ...byte) {
	b, at := beginFrame(c.out, frameAMQP, channel)
	c.out = endFrame(append(p.encode(b), payload...), at)
}

// flush sends what has been queued, and waits until the server has handled it.
func (c *testClient) flush() {
	c.t.Helper()
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	if err != nil {
		c.t.Fatalf("write: %v", err)
	}
	synctest.Wait()
}

func (c *testClient) send(channel uint16, p performative, payload ...byte) {
	c.t.Helper()
	c.queue(channel, p, payload...)
	c.flush()
}

// next returns the next frame; there must be one.
func (c *testClient) next() received {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) == 0 {
		c.t.Fatalf("the server sent nothing, reading ended with %v", c.err)
	}
	r := c.got[0]
	c.got = c.got[1:]
	return r
}

// nothing checks that no frame is left.
func (c *testClient) nothing() {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.got {
		c.t.Errorf("unexpected %T %+v", r.p, r.p)
	}
	c.got = nil
}

// gone checks that the server has closed the connection, and that nothing is left.
func (c *testClient) gone() {
	c.t.Helper()
	c.nothing()
	select {
	case <-c.peer.closed:
	default:
		c.t.Error("the connection is still open")
	}
}

// expect returns the next frame, which must be of type T.
func expect[T any](c *testClient) T {
	c.t.Helper()
	r := c.next()
	p, ok := r.p.(T)
	if !ok {
		var want T
		c.t.Fatalf("got %T %+v, want %T", r.p, r.p, want)
	}
	return p
}

// expectError checks that the next frame carries an error of the condition.
func expectError(c *testClient, condition Symbol) {
	c.t.Helper()
	r := c.next()
	var e *Error
	switch p := r.p.(type) {
	case *endOrClose:
		e = p.err
	case *detach:
		e = p.err
	default:
		c.t.Fatalf("got %T %+v, want an error %s", p, p, condition)
	}
	if e == nil || e.Condition != condition || e.Description == "" {
		c.t.Errorf("got %T with %v, want %s", r.p, e, condition)
	}
}

// outcome returns the outcome in a frame that settles one delivery; nil is accepted.
func (r *received) outcome(t testing.TB) (id uint32, rejected *Error) {
	t.Helper()
	p, ok := r.p.(*disposition)
	if !ok || p.first != p.last || !p.settled || !p.receiver {
		t.Fatalf("got %T %+v, want one delivery settled", r.p, r.p)
	}
	d := decoder{buf: r.raw} // decoding a disposition leaves an error out
	whole, _ := d.value().(Described)
	fields, _ := whole.Value.(List)
	state, _ := fields[4].(Described)
	if state.Descriptor == uint64(descAccepted) {
		return p.first, nil
	}
	list, _ := state.Value.(List)
	inner, _ := list[0].(Described)
	text, _ := inner.Value.(List)
	rejected = &Error{}
	rejected.Condition, _ = text[0].(Symbol)
	rejected.Description, _ = text[1].(string)
	return p.first, rejected
}

// session begins a session on channel 0.
func (c *testClient) session() {
	c.t.Helper()
	c.send(0, &begin{incomingWindow: 5000, outgoingWindow: 5000, handleMax: 100})
	if b := expect[*begin](c); !b.hasRemote || b.remoteChannel != 0 || b.incomingWindow != sessionWindow {
		c.t.Fatalf("begin %+v", b)
	}
}

// sender attaches a link on which the client sends.
func (c *testClient) sender(handle uint32) {
	c.t.Helper()
	c.send(0, &attach{name: fmt.Sprint("to ", handle), handle: handle, sndSettle: senderMixed, source: &terminus{}, target: &terminus{address: "node"}})
	if a := expect[*attach](c); !a.receiver || a.target == nil || a.target.address != "node" || a.handle != handle {
		c.t.Fatalf("attach %+v", a)
	}
}

// receiver attaches a link on which the client receives.
func (c *testClient) receiver(handle uint32) {
	c.t.Helper()
	c.receiverOf(handle, senderMixed)
}

// receiverOf attaches a receiver that asks for a snd-settle-mode.
func (c *testClient) receiverOf(handle uint32, settle byte) {
	c.t.Helper()
	c.send(0, &attach{name: fmt.Sprint("from ", handle), handle: handle, receiver: true, sndSettle: settle,
		source: &terminus{address: "node"}, target: &terminus{address: "reply"}})
	if a := expect[*attach](c); a.receiver || a.source == nil || a.source.address != "node" || a.handle != handle {
		c.t.Fatalf("attach %+v", a)
	}
}

// credit grants credit on a link, with the whole session window.
func credit(handle, count, n uint32) *flow {
	return &flow{hasIncomingID: true, incomingWindow: 1 << 20, hasHandle: true, handle: handle, deliveryCount: count, hasCount: true, credit: n,
		hasCredit: true}
}

// accepting is a target that accepts all messages and records them.
type accepting struct {
	mu    sync.Mutex
	got   []string
	ended error
	done  bool
	meter Meter
}

func (a *accepting) open(l *Incoming) (func(context.Context) error, error) {
	l.CountWith(&a.meter)
	return func(ctx context.Context) error {
		for {
			ds, err := l.Next(ctx)
			a.mu.Lock()
			if err != nil {
				a.ended, a.done = err, true
				a.mu.Unlock()
				return err
			}
			for _, d := range ds {
				a.got = append(a.got, string(d.Payload))
			}
			a.mu.Unlock()
			l.Settle(ds, nil)
		}
	}, nil
}

func (a *accepting) check(t testing.TB, want ...string) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !reflect.DeepEqual(a.got, want) && len(a.got)+len(want) > 0 {
		t.Errorf("received %.200q, want %.200q", a.got, want)
	}
	a.got = nil
}

// counting is a source that sends the numbers from 0 below n, then waits for more to be added.
type counting struct {
	mu     sync.Mutex
	n      int
	more   chan struct{}
	encode func(b []byte, i int) []byte
	ended  int
}

func count(n int) *counting { return &counting{n: n, more: make(chan struct{}, 1)} }

func (s *counting) add(n int) {
	s.mu.Lock()
	s.n += n
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default: // the source has not looked since the last time
	}
}

func (s *counting) open(l *Outgoing) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		defer func() {
			s.mu.Lock()
			s.ended++
			s.mu.Unlock()
		}()
		next := 0
		for {
			credit, err := l.WaitCredit(ctx)
			if err != nil {
				return err
			}
			s.mu.Lock()
			n := min(s.n-next, credit)
			s.mu.Unlock()
			if n == 0 {
				l.Idle()
				select {
				case <-s.more:
				case <-ctx.Done():
					return ctx.Err()
				}
				continue
			}
			sent, err := l.Send(n, 0, func(b []byte, i int) []byte {
				if s.encode != nil {
					return s.encode(b, next+i)
				}
				return fmt.Appendf(b, "%d", next+i)
			})
			if err != nil {
				return err
			}
			next += sent
		}
	}, nil
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func sleep(d time.Duration) { time.Sleep(d) } // virtual: only ever called in a bubble

func pipe() (near, far net.Conn) { return net.Pipe() }
