package amqp

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

func TestSessions(t *testing.T) {
	bubble(t, "many on one connection", func(t *testing.T) {
		c := opened(t, &testPeer{}, &Config{MaxSessions: 10}, nil)
		for ch := range uint16(10) {
			c.send(ch, &begin{incomingWindow: 1})
			r := c.next()
			if p, ok := r.p.(*begin); !ok || r.channel != ch || p.remoteChannel != ch {
				t.Fatalf("channel %d: got %T %+v on %d", ch, r.p, r.p, r.channel)
			}
		}
		c.send(3, &endOrClose{desc: descEnd})
		if r := c.next(); r.channel != 3 {
			t.Errorf("end on channel %d", r.channel)
		}
		c.send(3, &begin{incomingWindow: 1}) // the channel is free again
		expect[*begin](c)
		c.send(10, &begin{incomingWindow: 1})
		expectError(c, CondNotAllowed)
		c.gone()
	})
	bubble(t, "begun twice", func(t *testing.T) {
		c := opened(t, &testPeer{}, nil, nil)
		c.session()
		c.send(0, &begin{})
		expectError(c, CondNotAllowed)
		c.gone()
	})
	bubble(t, "flow with echo", func(t *testing.T) {
		c := opened(t, &testPeer{}, nil, nil)
		c.session()
		c.send(0, &flow{hasIncomingID: true, nextOutgoingID: 7, incomingWindow: 5, echo: true})
		if p := expect[*flow](c); p.hasHandle || p.nextIncomingID != 7 || p.incomingWindow != sessionWindow || p.outgoingWindow == 0 {
			t.Errorf("flow %+v", p)
		}
	})
	bubble(t, "end is answered when the links are done", func(t *testing.T) {
		target, source := &accepting{}, count(0)
		c := opened(t, &testPeer{incoming: target.open, outgoing: source.open}, nil, nil)
		c.session()
		c.sender(0)
		expect[*flow](c)
		c.receiver(1)
		c.queue(0, &transfer{handle: 0, deliveryID: 0, hasID: true}, 'x')
		c.queue(0, &endOrClose{desc: descEnd})
		c.flush()
		for {
			if _, ok := c.next().p.(*endOrClose); ok {
				break
			}
		}
		c.nothing()
		target.check(t, "x")
		if !target.done || source.ended != 1 {
			t.Error("a link's function still runs")
		}
		c.send(0, &detach{handle: 0, closed: true}) // too late, and ignored
		c.nothing()
		c.session() // everything is free again
		c.sender(0)
	})
}

// A protocol error in a session ends that session only.
func TestSessionErrors(t *testing.T) {
	for name, v := range map[string]struct {
		frame     performative
		condition Symbol
	}{
		"transfer on an unattached handle":         {&transfer{handle: 9, hasID: true}, CondUnattachedHandle},
		"flow for an unattached handle":            {&flow{hasIncomingID: true, hasHandle: true, handle: 9}, CondUnattachedHandle},
		"detach of an unattached handle":           {&detach{handle: 9}, CondUnattachedHandle},
		"handle in use":                            {&attach{name: "other", handle: 0, target: &terminus{}}, CondHandleInUse},
		"handle above the maximum":                 {&attach{name: "other", handle: 3, target: &terminus{}}, CondNotAllowed},
		"endless name":                             {&attach{name: strings.Repeat("n", maxName+1), handle: 2, target: &terminus{}}, CondInvalidField},
		"too many links":                           {&attach{name: "other", handle: 2, target: &terminus{}}, CondResourceLimit},
		"transfer on a link the client reads from": {&transfer{handle: 1, hasID: true}, CondErrantLink},
	} {
		bubble(t, name, func(t *testing.T) {
			target, source := &accepting{}, count(0)
			cfg := &Config{MaxLinks: 3}
			if name == "too many links" {
				cfg.MaxLinks = 2
			}
			c := opened(t, &testPeer{incoming: target.open, outgoing: source.open}, cfg, nil)
			c.send(1, &begin{incomingWindow: 1})
			expect[*begin](c)
			c.session()
			c.sender(0)
			expect[*flow](c)
			c.receiver(1)
			if name == "too many links" {
				v.frame = &attach{name: "other", handle: 0, target: &terminus{}}
				c.send(1, v.frame)
				expectError(c, v.condition)
				return
			}
			c.send(0, v.frame)
			expectError(c, v.condition)
			c.send(0, &transfer{handle: 0, hasID: true}, 'x') // ignored: the client hasn't seen the end yet
			c.nothing()
			if !target.done || source.ended != 1 {
				t.Error("a link's function still runs")
			}
			c.send(0, &endOrClose{desc: descEnd})
			c.nothing()
			c.session()
			c.send(1, &flow{hasIncomingID: true, incomingWindow: 1, echo: true}) // the other session has not ended
			expect[*flow](c)
		})
	}
}

func TestIncomingWindow(t *testing.T) {
	bubble(t, "replenished", func(t *testing.T) {
		target := &accepting{}
		c := opened(t, &testPeer{incoming: target.open}, &Config{Credit: 100000}, nil)
		c.session()
		c.sender(0)
		expect[*flow](c)
		left, n := uint32(sessionWindow), uint32(0)
		for range 3 {
			for range sessionWindow/2 + 1 {
				c.queue(0, &transfer{handle: 0, deliveryID: n, hasID: true, settled: true}, 'x')
				n++
				left--
			}
			c.flush()
			if p := expect[*flow](c); p.nextIncomingID != n || p.incomingWindow != sessionWindow {
				t.Fatalf("flow %+v after %d transfers", p, n)
			}
		}
		c.nothing()
	})
}

func TestUnsettledDeliveriesAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := count(3)
		c := opened(t, &testPeer{outgoing: source.open}, nil, nil)
		c.session()
		c.send(0, &attach{name: "l", receiver: true, sndSettle: senderUnsettled, rcvSettle: receiverSecond,
			source: &terminus{address: "node"}, target: &terminus{}})
		if a := expect[*attach](c); a.sndSettle != senderUnsettled || a.rcvSettle != receiverSecond {
			t.Errorf("attach %+v", a)
		}
		c.send(0, credit(0, 0, 3))
		for i := range 3 {
			r := c.next()
			if p, ok := r.p.(*transfer); !ok || p.settled || string(r.payload) != fmt.Sprint(i) {
				t.Errorf("got %+v, %q", r.p, r.payload)
			}
		}
		c.send(0, &disposition{receiver: true, first: 0, last: 2})
		if p := expect[*disposition](c); p.receiver || !p.settled || p.first != 0 || p.last != 2 {
			t.Errorf("disposition %+v", p)
		}
		c.send(0, &disposition{receiver: true, first: 0, last: 2, settled: true})
		c.nothing()
	})
}

// An answer larger than the client's max-frame-size ends the connection.
func TestAnswerLargerThanTheFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := count(0)
		c := opened(t, &testPeer{outgoing: source.open}, nil, &open{containerID: "c", maxFrameSize: 512})
		c.session()
		c.send(0, &attach{name: string(make([]byte, 600)), receiver: true, source: &terminus{address: "node"}})
		expectError(c, CondFrameSizeTooSmall)
		c.gone()
		if source.ended != 1 {
			t.Error("the link's function still runs")
		}
	})
}
