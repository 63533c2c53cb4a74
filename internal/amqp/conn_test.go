package amqp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func saslInitFrame(mechanism string, response []byte) []byte {
	b, at := beginFrame(nil, frameSASL, 0)
	return endFrame((&saslInit{mechanism: Symbol(mechanism), response: response}).encode(b), at)
}

func TestHandshake(t *testing.T) {
	accept := func(got []byte) bool {
		return bytes.Contains(got, headerAMQP[:]) && bytes.HasPrefix(got, headerSASL[:])
	}
	for _, v := range []struct {
		name string
		in   []byte
		auth func(string, []byte) error
		ok   func([]byte) bool
	}{
		{name: "anonymous", in: append(append(headerSASL[:], saslInitFrame("ANONYMOUS", []byte("x"))...), headerAMQP[:]...), ok: accept},
		{name: "Azure's own mechanism", in: append(append(headerSASL[:], saslInitFrame("MSSBCBS", nil)...), headerAMQP[:]...), ok: accept},
		{name: "plain", in: append(append(headerSASL[:], saslInitFrame("PLAIN", []byte("\x00u\x00p"))...), headerAMQP[:]...), ok: accept,
			auth: func(m string, r []byte) error {
				if m != "PLAIN" || string(r) != "\x00u\x00p" {
					return errors.New("no")
				}
				return nil
			}},
		{name: "refused", in: append(append(headerSASL[:], saslInitFrame("PLAIN", nil)...), headerAMQP[:]...),
			auth: func(string, []byte) error { return errors.New("no") },
			ok:   func(got []byte) bool { return bytes.Contains(got, []byte{codeUbyte, saslAuth}) && !accept(got) }},
		{name: "unknown mechanism", in: append(headerSASL[:], saslInitFrame("SCRAM", nil)...),
			ok: func(got []byte) bool { return bytes.Contains(got, []byte{codeUbyte, saslAuth}) }},
		{name: "no SASL", in: headerAMQP[:], ok: func(got []byte) bool { return bytes.HasPrefix(got, headerAMQP[:]) }},
		{name: "no SASL, refused", in: headerAMQP[:], auth: func(string, []byte) error { return errors.New("no") },
			ok: func(got []byte) bool { return len(got) == 0 }},
		{name: "HTTP", in: []byte("GET / HTTP/1.1\r\n\r\n"), ok: func(got []byte) bool { return bytes.Equal(got, headerSASL[:]) }},
		{name: "AMQP 0.9.1", in: []byte("AMQP\x00\x00\x09\x01"), ok: func(got []byte) bool { return bytes.Equal(got, headerSASL[:]) }},
		{name: "SASL frame that isn't an init", in: append(headerSASL[:], 0, 0, 0, 12, 2, 1, 0, 0, 0, 0x53, 0x42, 0x45),
			ok: func(got []byte) bool { return !accept(got) }},
		{name: "AMQP frame in place of SASL", in: append(headerSASL[:], 0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x10, 0x45),
			ok: func(got []byte) bool { return !accept(got) }},
	} {
		bubble(t, v.name, func(t *testing.T) {
			c := newTestClient(t, &testPeer{auth: v.auth}, nil)
			go c.nc.Write(v.in)
			var got []byte
			go func() { got, _ = io.ReadAll(c.nc) }()
			sleep(handshakeTimeout + lingerTimeout + time.Second) // no open frame follows
			synctest.Wait()
			select {
			case <-c.peer.closed:
			default:
				t.Error("a connection without an open frame wasn't closed in time")
			}
			if !v.ok(got) {
				t.Errorf("the server sent % x", got)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	bubble(t, "agreed", func(t *testing.T) {
		c := newTestClient(t, &testPeer{}, &Config{IdleTimeout: time.Minute, MaxFrameSize: 4096, MaxSessions: 7, ContainerID: "me"})
		go c.nc.Write(headerAMQP[:])
		io.ReadFull(c.nc, make([]byte, 8))
		go c.read()
		c.send(0, &open{containerID: "c", maxFrameSize: 64 << 10, idleTimeOut: 60000})
		p := expect[*open](c)
		if p.containerID != "me" || p.maxFrameSize != 4096 || p.channelMax != 6 || p.idleTimeOut != 30000 {
			t.Errorf("open %+v", p)
		}
		c.send(0, &endOrClose{desc: descClose})
		if e := expect[*endOrClose](c); e.desc != descClose || e.err != nil {
			t.Errorf("got %+v", e)
		}
		c.gone()
	})
	for name, v := range map[string]struct {
		frame     []byte
		condition Symbol
	}{
		"max-frame-size too small": {encoded(&open{containerID: "c", maxFrameSize: 511}), CondInvalidField},
		"another first frame":      {encoded(&begin{}), CondNotAllowed},
		"not a performative":       {[]byte{0, 0, 0, 9, 2, 0, 0, 0, 0x45}, CondNotAllowed},
		"malformed open":           {[]byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x10, 0xc0}, CondDecode},
	} {
		bubble(t, name, func(t *testing.T) {
			c := newTestClient(t, &testPeer{}, nil)
			go c.nc.Write(headerAMQP[:])
			io.ReadFull(c.nc, make([]byte, 8))
			go c.read()
			c.out = v.frame
			c.flush()
			expect[*open](c)
			expectError(c, v.condition)
			c.gone()
		})
	}
}

func encoded(p performative) []byte {
	b, at := beginFrame(nil, frameAMQP, 0)
	return endFrame(p.encode(b), at)
}

// Malformed input ends the connection with an error that names the reason.
func TestMalformedFrames(t *testing.T) {
	frame := func(body string) []byte {
		b, at := beginFrame(nil, frameAMQP, 0)
		return endFrame(append(b, body...), at)
	}
	for name, v := range map[string]struct {
		bytes     []byte
		condition Symbol
	}{
		"frame above the maximum":            {[]byte{0, 1, 0, 1, 2, 0, 0, 0}, CondFraming},
		"frame of 4 GiB":                     {[]byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0}, CondFraming},
		"frame shorter than its header":      {[]byte{0, 0, 0, 7, 2, 0, 0, 0}, CondFraming},
		"header of 4 bytes":                  {[]byte{0, 0, 0, 8, 1, 0, 0, 0}, CondFraming},
		"header beyond the frame":            {[]byte{0, 0, 0, 8, 3, 0, 0, 0}, CondFraming},
		"SASL frame":                         {[]byte{0, 0, 0, 12, 2, 1, 0, 0, 0, 0x53, 0x41, 0x45}, CondFraming},
		"garbage":                            {frame("garbage!"), CondDecode},
		"unknown performative":               {frame("\x00\x53\x1f\x45"), CondDecode},
		"second open":                        {encoded(&open{containerID: "c", maxFrameSize: 512}), CondDecode},
		"begin with 4 billion fields":        {frame("\x00\x53\x11\xd0\x00\x00\x00\x04\xff\xff\xff\xff"), CondDecode},
		"end without a session":              {encoded(&endOrClose{desc: descEnd}), CondNotAllowed},
		"flow without a session":             {encoded(&flow{}), CondNotAllowed},
		"transfer without a session":         {encoded(&transfer{}), CondNotAllowed},
		"attach without a session":           {encoded(&attach{}), CondNotAllowed},
		"disposition without a session":      {encoded(&disposition{}), CondNotAllowed},
		"answer to a begin that wasn't sent": {encoded(&begin{hasRemote: true}), CondNotAllowed},
		"attach with a nested bomb":          {frame("\x00\x53\x12\xd0\x00\x00\x00\xff\x00\x00\x00\x01" + strings.Repeat("\x00", 251)), CondDecode},
		"transfer with a tag of 4 GiB":       {frame("\x00\x53\x14\xc0\x09\x03\x43\x43\xb0\xff\xff\xff\xff"), CondDecode},
		"frame with an extended header":      {append([]byte{0, 0, 0, 16, 3, 0, 0, 0, 1, 2, 3, 4}, "\x00\x53\x99\x45"...), CondDecode},
		"two frames, the second garbage":     {append(encoded(&begin{}), frame("\x45")...), CondDecode},
	} {
		bubble(t, name, func(t *testing.T) {
			c := opened(t, &testPeer{}, nil, nil)
			c.out = v.bytes
			c.flush()
			if strings.HasPrefix(name, "two") {
				expect[*begin](c)
			}
			expectError(c, v.condition)
			c.gone()
		})
	}
	bubble(t, "frame cut by the end of the stream", func(t *testing.T) {
		c := opened(t, &testPeer{}, nil, nil)
		c.out = encoded(&begin{})[:11]
		c.flush()
		c.nc.Close()
		c.gone()
	})
}

func TestHeartbeats(t *testing.T) {
	bubble(t, "sent", func(t *testing.T) {
		c := opened(t, &testPeer{}, nil, &open{containerID: "c", maxFrameSize: 512, idleTimeOut: 10000})
		for range 20 {
			sleep(10 * time.Second)
			c.nc.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		}
		synctest.Wait()
		if c.beat < 39 || c.beat > 41 {
			t.Errorf("%d heartbeats in 200 s, for an idle timeout of 10 s", c.beat)
		}
		c.nothing()
	})
	bubble(t, "not sent more often than ten times a second", func(t *testing.T) {
		c := opened(t, &testPeer{}, nil, &open{containerID: "c", maxFrameSize: 512, idleTimeOut: 1})
		sleep(10 * time.Second)
		synctest.Wait()
		if c.beat > 101 {
			t.Errorf("%d heartbeats in 10 s", c.beat)
		}
	})
	bubble(t, "expected", func(t *testing.T) {
		c := opened(t, &testPeer{}, &Config{IdleTimeout: time.Minute}, nil)
		for range 5 {
			sleep(59 * time.Second)
			c.nc.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		}
		c.nothing()
		sleep(61 * time.Second)
		expectError(c, CondResourceLimit)
		c.gone()
	})
}

func TestServerClose(t *testing.T) {
	bubble(t, "sends close", func(t *testing.T) {
		target, source := &accepting{}, count(0)
		c := opened(t, &testPeer{incoming: target.open, outgoing: source.open}, nil, nil)
		c.session()
		c.sender(0)
		expect[*flow](c)
		c.receiver(1)
		c.srv.Close()
		expectError(c, CondConnectionForced)
		c.gone()
		if !target.done || source.ended != 1 {
			t.Error("a link's function still runs")
		}
		if n := c.srv.Connections(); n != 0 {
			t.Errorf("%d connections after Close", n)
		}
	})
	bubble(t, "before the open frame", func(t *testing.T) {
		c := newTestClient(t, &testPeer{}, nil)
		go c.nc.Write(headerAMQP[:])
		io.ReadFull(c.nc, make([]byte, 8))
		go c.read()
		synctest.Wait()
		began := time.Now()
		c.srv.Close()
		if d := time.Since(began); d > 2*lingerTimeout {
			t.Errorf("Close took %v", d)
		}
	})
	bubble(t, "with a client that doesn't read", func(t *testing.T) {
		c := newTestClient(t, &testPeer{}, &Config{WriteTimeout: 5 * time.Second})
		c.nc.Write(headerAMQP[:])
		began := time.Now()
		c.srv.Close()
		if d := time.Since(began); d > 6*time.Second+lingerTimeout {
			t.Errorf("Close took %v", d)
		}
	})
	bubble(t, "Drop sends nothing", func(t *testing.T) {
		target := &accepting{}
		c := opened(t, &testPeer{incoming: target.open}, nil, nil)
		c.session()
		c.sender(0)
		expect[*flow](c)
		c.srv.Drop()
		c.gone()
		if !target.done {
			t.Error("the link's function still runs")
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, &testPeer{}, &Config{MaxConnections: 1})
		if got := second(c); len(got) != 0 {
			t.Errorf("the server sent % x on a connection above the limit", got)
		}
	})
}

// second opens one more connection to the client's server and reads it to its end.
func second(c *testClient) []byte {
	near, far := pipe()
	c.srv.start(far)
	got, _ := io.ReadAll(near)
	return got
}
