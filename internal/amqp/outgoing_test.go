package amqp

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
)

// messages receives n messages, joining those of several frames.
func (c *testClient) messages(handle uint32, n int) []string {
	c.t.Helper()
	var all []string
	var part []byte
	for len(all) < n {
		r := c.next()
		p, ok := r.p.(*transfer)
		if !ok || p.handle != handle {
			c.t.Fatalf("got %T %+v, want a transfer on %d", r.p, r.p, handle)
		}
		part = append(part, r.payload...)
		if !p.more {
			all = append(all, string(part))
			part = nil
		}
	}
	return all
}

func check(t *testing.T, got []string, first int) {
	t.Helper()
	for i, m := range got {
		if m != fmt.Sprint(first+i) {
			t.Fatalf("message %d of %d is %q", i, len(got), m)
		}
	}
}

func TestOutgoingCredit(t *testing.T) {
	source := count(0)
	begin := func(t *testing.T, n int) *testClient {
		source = count(n)
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.session()
		c.receiver(0)
		c.nothing() // no credit yet
		return c
	}
	bubble(t, "granted bit by bit", func(t *testing.T) {
		c := begin(t, 100)
		c.send(0, credit(0, 0, 10))
		check(t, c.messages(0, 10), 0)
		c.nothing()
		c.send(0, credit(0, 10, 5))
		check(t, c.messages(0, 5), 10)
		c.nothing()
		// Credit is counted from the delivery count that the client has seen: 3 of these 10 are
		// used already.
		c.send(0, credit(0, 12, 10))
		check(t, c.messages(0, 7), 15)
		c.nothing()
	})
	bubble(t, "taken back", func(t *testing.T) {
		c := begin(t, 0)
		c.send(0, credit(0, 0, 10))
		c.send(0, credit(0, 0, 0))
		source.add(5)
		c.nothing()
	})
	bubble(t, "new messages are sent at once", func(t *testing.T) {
		c := begin(t, 0)
		c.send(0, credit(0, 0, 10))
		c.nothing()
		source.add(3)
		check(t, c.messages(0, 3), 0)
	})
	bubble(t, "drained when there is nothing", func(t *testing.T) {
		c := begin(t, 3)
		p := credit(0, 0, 10)
		p.drain = true
		c.send(0, p)
		check(t, c.messages(0, 3), 0)
		if f := expect[*flow](c); !f.hasHandle || f.credit != 0 || f.deliveryCount != 10 || !f.drain {
			t.Errorf("flow %+v", f)
		}
		source.add(1)
		c.nothing() // the credit is used up
		c.send(0, credit(0, 10, 1))
		check(t, c.messages(0, 1), 3)
	})
	bubble(t, "drained while waiting", func(t *testing.T) {
		c := begin(t, 0)
		c.send(0, credit(0, 0, 10))
		p := credit(0, 0, 10)
		p.drain = true
		c.send(0, p)
		if f := expect[*flow](c); f.credit != 0 || f.deliveryCount != 10 {
			t.Errorf("flow %+v", f)
		}
	})
	bubble(t, "echoed", func(t *testing.T) {
		c := begin(t, 2)
		p := credit(0, 0, 5)
		p.echo = true
		c.send(0, p)
		var f *flow
		n := 0
		for range 3 {
			switch p := c.next().p.(type) {
			case *flow:
				f = p
			case *transfer:
				n++
			}
		}
		if f == nil || n != 2 || f.credit+f.deliveryCount != 5 {
			t.Errorf("flow %+v, %d transfers", f, n)
		}
	})
}

// A message that is larger than the client's frames is sent in several.
func TestOutgoingFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := count(3)
		source.encode = func(b []byte, i int) []byte { return append(b, bytes.Repeat([]byte{byte('a' + i)}, 1000*i+1)...) }
		c := opened(t, &testPeer{outgoing: source.open}, nil, &open{containerID: "c", maxFrameSize: 512})
		c.session()
		c.receiver(0)
		c.send(0, credit(0, 0, 10))
		for i := range 3 {
			size, frames, id := 0, 0, uint32(0)
			for more := true; more; frames++ {
				r := c.next()
				p := r.p.(*transfer)
				if frames == 0 {
					id = p.deliveryID
				}
				if p.deliveryID != id || len(r.payload)+transferOverhead > 512+transferOverhead {
					t.Errorf("frame %d of message %d: %+v with %d bytes", frames, i, p, len(r.payload))
				}
				size += len(r.payload)
				more = p.more
			}
			if size != 1000*i+1 || frames != size/(512-transferOverhead)+1 {
				t.Errorf("message %d: %d bytes in %d frames", i, size, frames)
			}
		}
		c.nothing()
	})
}

// Service Bus gives the messages that it deletes no delivery-tag; the clients take one of 16 bytes
// for a lock.
func TestTagOfPreSettled(t *testing.T) {
	for settle, length := range map[byte]int{senderSettled: 0, senderMixed: 4} {
		synctest.Test(t, func(t *testing.T) {
			source := count(3)
			c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
			c.session()
			c.receiverOf(0, settle)
			c.send(0, credit(0, 0, 3))
			for range 3 {
				if p := expect[*transfer](c); !p.settled || p.tag == nil || len(p.tag) != length {
					t.Errorf("snd-settle-mode %d: %+v, want settled with a tag of %d bytes", settle, p, length)
				}
			}
		})
	}
}

// The window of a session counts frames, also within a message, and is shared by its links.
func TestRemoteWindow(t *testing.T) {
	bubble(t, "within a message", func(t *testing.T) {
		source := count(2)
		source.encode = func(b []byte, i int) []byte { return append(b, bytes.Repeat([]byte{'x'}, 2000)...) }
		c := opened(t, &testPeer{outgoing: source.open}, nil, &open{containerID: "c", maxFrameSize: 512})
		c.send(0, &begin{incomingWindow: 2})
		expect[*begin](c)
		c.receiver(0)
		c.send(0, &flow{hasIncomingID: true, incomingWindow: 2, hasHandle: true, handle: 0, credit: 10, hasCredit: true})
		size, next := 0, uint32(0)
		for next < 10 { // 5 frames a message
			for range 2 {
				r := c.next()
				size += len(r.payload)
				next++
			}
			c.nothing()
			c.send(0, &flow{nextIncomingID: next, hasIncomingID: true, incomingWindow: 2})
		}
		if size != 4000 {
			t.Errorf("%d bytes", size)
		}
	})
	bubble(t, "shrunk below what is on its way", func(t *testing.T) {
		source := count(10)
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.send(0, &begin{incomingWindow: 5})
		expect[*begin](c)
		c.receiver(0)
		c.send(0, &flow{hasIncomingID: true, incomingWindow: 5, hasHandle: true, credit: 100, hasCredit: true})
		check(t, c.messages(0, 5), 0)
		c.nothing()
		c.send(0, &flow{nextIncomingID: 2, hasIncomingID: true, incomingWindow: 1}) // 3 are in flight
		c.nothing()
		c.send(0, &flow{nextIncomingID: 5, hasIncomingID: true, incomingWindow: 2})
		check(t, c.messages(0, 2), 5)
		c.nothing()
	})
	bubble(t, "before the begin was seen", func(t *testing.T) {
		source := count(10)
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.queue(0, &begin{incomingWindow: 5})
		c.queue(0, &attach{name: "l", receiver: true, source: &terminus{address: "node"}})
		f := &flow{incomingWindow: 4, hasHandle: true, credit: 100, hasCredit: true}
		b, at := beginFrame(c.out, frameAMQP, 0)
		fields := f.encode(b)
		fields[len(b)+12] = codeNull // next-incoming-id
		c.out = endFrame(fields, at)
		c.flush()
		expect[*begin](c)
		expect[*attach](c)
		check(t, c.messages(0, 4), 0)
		c.nothing()
	})
}

// A link whose client grants no credit, or whose session's window is closed, doesn't block the
// other links of its connection.
func TestSlowLinkHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &accepting{}
		source := count(1000)
		c := opened(t, &testPeer{incoming: target.open, outgoing: source.open}, nil, nil)
		c.send(1, &begin{incomingWindow: 0})
		expect[*begin](c)
		c.send(1, &attach{name: "window closed", receiver: true, source: &terminus{address: "node"}})
		expect[*attach](c)
		c.send(1, &flow{hasIncomingID: true, hasHandle: true, credit: 1000, hasCredit: true})
		c.session()
		c.receiver(0) // no credit
		c.receiver(1)
		c.send(0, credit(1, 0, 500))
		check(t, c.messages(1, 500), 0)
		c.sender(2)
		expect[*flow](c)
		c.send(0, &transfer{handle: 2, deliveryID: 0, hasID: true}, 'x')
		target.check(t, "x")
		expect[*disposition](c)
		c.nothing()
	})
}

// While the client doesn't read, only a bounded amount is queued for it.
func TestOutputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := count(1 << 30)
		source.encode = func(b []byte, i int) []byte { return append(b, make([]byte, 10000)...) }
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.session()
		c.receiver(0)
		c.hold = make(chan struct{})
		b, at := beginFrame(nil, frameAMQP, 0)
		if _, err := c.nc.Write(endFrame(credit(0, 0, 200).encode(b), at)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		queued := 0
		c.srv.each(func(conn *Conn) {
			conn.mu.Lock()
			queued = len(conn.out)
			conn.mu.Unlock()
		})
		if queued < highWater || queued > highWater+20000 {
			t.Errorf("%d bytes are queued, the bound is about %d", queued, highWater)
		}
		close(c.hold)
		c.messages(0, 200) // sending continues
		c.nothing()
	})
}
