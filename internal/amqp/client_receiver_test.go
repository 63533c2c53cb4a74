package amqp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// served connects a client to a server of this package, in a bubble.
func served(t testing.TB, peer *testPeer, cfg *Config, clientCfg *ClientConfig) *Client {
	t.Helper()
	peer.closed = make(chan struct{})
	srv := NewServer(func(*Conn) Peer { return peer }, cfg)
	near, far := pipe()
	srv.start(far)
	c, err := NewClient(t.Context(), near, clientCfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close(endedContext)
		srv.Close()
	})
	return c
}

func attached(t testing.TB, c *Client) *Receiver {
	t.Helper()
	r, err := c.Attach(t.Context(), &ReceiverConfig{Source: "node", Target: "me"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// take waits for n messages, each of them as text.
func take(t testing.TB, r *Receiver, n int) (all []string) {
	t.Helper()
	for {
		for _, m := range r.Take(nil) {
			all = append(all, string(m))
		}
		if len(all) >= n {
			return all
		}
		select {
		case <-r.Arrived():
		case <-r.Done():
			t.Fatalf("the link ended after %d of %d messages: %v", len(all), n, r.Err())
		case <-time.After(time.Minute): // virtual
			t.Fatalf("%d of %d messages came", len(all), n)
		}
	}
}

func TestReceiver(t *testing.T) {
	bubble(t, "credit", func(t *testing.T) {
		source := count(20_000)
		c := served(t, &testPeer{outgoing: source.open}, nil, nil)
		r := attached(t, c)
		synctest.Wait()
		if got := r.Take(nil); len(got) != 0 {
			t.Errorf("without credit came %q", got)
		}
		next := 0
		for _, credit := range []int{1, 2, 4997, 5000, 10_000} { // the session's window is 5,000
			r.Flow(credit)
			check(t, take(t, r, credit), next)
			next += credit
			synctest.Wait()
			if got := r.Take(nil); len(got) != 0 {
				t.Errorf("%d more than the credit came", len(got))
			}
		}
		r.Flow(10)
		source.add(3)
		check(t, take(t, r, 3), next)
		r.Flow(3) // lowers the credit of 7 that is left
		source.add(20)
		check(t, take(t, r, 3), next+3)
	})
	bubble(t, "sizes", func(t *testing.T) {
		sizes := []int{0, 1, 511, 65_000, 65_536, 200_000, 3, sharedMemory / 4, sharedMemory/4 + 1, 1 << 20}
		source := count(len(sizes))
		body := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, sizes[i]) }
		source.encode = func(b []byte, i int) []byte { return append(b, body(i)...) }
		r := attached(t, served(t, &testPeer{outgoing: source.open}, nil, nil))
		r.Flow(len(sizes))
		for i, got := range take(t, r, len(sizes)) {
			if got != string(body(i)) {
				t.Errorf("message %d of %d bytes came as %d", i, sizes[i], len(got))
			}
		}
	})
	bubble(t, "messages do not share what append could overwrite", func(t *testing.T) {
		r := attached(t, served(t, &testPeer{outgoing: count(10).open}, nil, nil))
		r.Flow(10)
		synctest.Wait()
		all := r.Take(nil)
		for _, m := range all {
			_ = append(m, "overwritten"...)
		}
		for i, m := range all {
			if string(m) != fmt.Sprint(i) {
				t.Errorf("message %d is %q", i, m)
			}
		}
	})
	bubble(t, "too large", func(t *testing.T) {
		source := count(1)
		source.encode = func(b []byte, _ int) []byte { return append(b, make([]byte, 200_000)...) }
		c := served(t, &testPeer{outgoing: source.open}, nil, &ClientConfig{MaxMessageSize: 100_000})
		r := attached(t, c)
		r.Flow(1)
		<-r.Done()
		<-c.Done()
		wantCondition(t, r.Err(), CondMessageSize)
	})
}

// receiverOf opens a connection to a server that a test plays, and requests two messages of a link
// of that name. The server has not answered the attach.
func receiverOf(t *testing.T, nc net.Conn, name string) (*Client, *Receiver) {
	t.Helper()
	c, err := NewClient(t.Context(), nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.begin()
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.receiver(&ReceiverConfig{Source: "node"})
	if err != nil {
		t.Fatal(err)
	}
	r.name = name // nothing reads it before the server answers
	r.Flow(2)
	return c, r
}

// A server that sends more messages than the client has asked for ends the connection: what the
// client keeps stays bounded.
func TestMoreThanTheCredit(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		near, far := pipe()
		const link = "link"
		attached := make(chan struct{})
		go func() {
			answerOpen(far, &open{maxFrameSize: 512})
			go func() { _, _ = io.Copy(io.Discard, far) }()
			<-attached
			for _, p := range []performative{&begin{hasRemote: true, incomingWindow: 10}, &attach{name: link, source: &terminus{}},
				&transfer{hasID: true}, &transfer{hasID: true, deliveryID: 1}, &transfer{hasID: true, deliveryID: 2}} {
				_, _ = far.Write(encoded(p))
			}
		}()
		c, r := receiverOf(t, near, link)
		close(attached)
		<-c.Done()
		wantCondition(t, c.Err(), CondTransferLimit)
		if n := len(r.Take(nil)); n != 2 {
			t.Errorf("%d messages came for a credit of 2", n)
		}
		c.Close(t.Context())
	})
}

// Transfers that do not make up messages end the connection: those that begin another message
// before one is complete, whose parts must not be joined, and those without payload that do not
// end.
func TestTransfersThatAreNoMessages(t *testing.T) {
	const link = "link"
	first, empty := &transfer{hasID: true, more: true}, &transfer{more: true}
	for name, c := range map[string]struct {
		sent      []performative // each with a byte of payload, but empty ones
		condition Symbol         // "": none
		came      []string
	}{
		"in parts":                 {[]performative{first, &transfer{hasID: true, more: true}, &transfer{}}, "", []string{"012"}},
		"some parts are empty":     {append(slices.Repeat([]performative{first, empty}, 50), &transfer{}), "", []string{"02468" + strings.Repeat("02468", 9) + "0"}},
		"another begins":           {[]performative{first, &transfer{hasID: true, deliveryID: 1}}, CondInvalidField, nil},
		"another begins, in parts": {[]performative{&transfer{hasID: true}, &transfer{hasID: true, deliveryID: 1, more: true}, &transfer{hasID: true, deliveryID: 2, more: true}}, CondInvalidField, []string{"0"}},
		"another tag":              {[]performative{first, &transfer{tag: []byte("other")}}, CondInvalidField, nil},
		"empty without end":        {append([]performative{first}, slices.Repeat([]performative{empty}, maxEmptyTransfers+1)...), CondNotAllowed, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			near, far := pipe()
			attached := make(chan struct{})
			go func() {
				answerOpen(far, &open{maxFrameSize: 512})
				go func() { _, _ = io.Copy(io.Discard, far) }()
				<-attached
				for _, p := range []performative{&begin{hasRemote: true, incomingWindow: 10}, &attach{name: link, source: &terminus{}}} {
					_, _ = far.Write(encoded(p))
				}
				for i, p := range c.sent {
					b, at := beginFrame(nil, frameAMQP, 0)
					if b = p.encode(b); p != empty {
						b = append(b, byte('0'+i%10))
					}
					_, _ = far.Write(endFrame(b, at))
				}
			}()
			client, r := receiverOf(t, near, link)
			close(attached)
			synctest.Wait()
			if c.condition == "" && client.Err() != nil {
				t.Errorf("the connection has ended: %v", client.Err())
			} else if c.condition != "" {
				wantCondition(t, client.Err(), c.condition)
			}
			var came []string
			for _, m := range r.Take(nil) {
				came = append(came, string(m))
			}
			if !slices.Equal(came, c.came) {
				t.Errorf("%q came, want %q", came, c.came)
			}
			client.Close(endedContext)
		})
	}
}

// A frame whose values nest too deep ends the connection at once.
func TestFrameNestedTooDeep(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		near, far := pipe()
		const link = "link"
		attached := make(chan struct{})
		var deep any = "x"
		for range 6000 {
			deep = List{deep}
		}
		go func() {
			answerOpen(far, &open{maxFrameSize: 512})
			go func() { _, _ = io.Copy(io.Discard, far) }()
			<-attached
			for _, p := range []performative{&begin{hasRemote: true, incomingWindow: 10}, &attach{name: link, source: &terminus{}, properties: Map{{Symbol("x"), deep}}}} {
				_, _ = far.Write(encoded(p))
			}
		}()
		c, r := receiverOf(t, near, link)
		close(attached)
		synctest.Wait()
		wantCondition(t, c.Err(), CondDecode)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "values nested deeper than 32") {
			t.Errorf("the link has ended with %v", err)
		}
		c.Close(endedContext)
	})
}

func wantCondition(t testing.TB, err error, condition Symbol) {
	t.Helper()
	if e := new(Error); !errors.As(err, &e) || e.Condition != condition {
		t.Errorf("got %v, want %s", err, condition)
	}
}

// What the attach of a receiver says arrives at the server.
func TestAttachOfReceiver(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var got *Outgoing
		var props, filter Map
		var desired bool
		peer := &testPeer{outgoing: func(l *Outgoing) (func(context.Context) error, error) {
			got, props, filter, desired = l, l.Properties(), l.Filter(), l.Desired("ability")
			return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
		}}
		c := served(t, peer, nil, &ClientConfig{Hostname: "example.org"})
		r, err := c.Attach(t.Context(), &ReceiverConfig{Source: "from", Target: "to", Desired: []Symbol{"ability"},
			Properties: Map{{Symbol("epoch"), int64(7)}}, Filter: Map{{Symbol("f"), Described{uint64(1), "expression"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got.Address() != "from" || got.ClientAddress() != "to" || got.PreSettled() || props.Get("epoch") != int64(7) || !desired {
			t.Errorf("%q from %q, properties %v", got.ClientAddress(), got.Address(), props)
		}
		if f, _ := filter.Get("f").(Described); f != (Described{uint64(1), "expression"}) {
			t.Errorf("filter %v", filter)
		}
		if h := got.c.Hostname(); h != "example.org" {
			t.Errorf("host name %q", h)
		}
		if err := r.Detach(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(r.Err(), ErrLinkClosed) {
			t.Errorf("after Detach: %v", r.Err())
		}
	})
}

func TestEndsOfReceiver(t *testing.T) {
	bubble(t, "refused", func(t *testing.T) {
		c := served(t, &testPeer{}, nil, nil)
		_, err := c.Attach(t.Context(), &ReceiverConfig{Source: "node"})
		wantCondition(t, err, CondNotFound)
		if c.Err() != nil {
			t.Errorf("the connection has ended: %v", c.Err())
		}
	})
	bubble(t, "detached by the server", func(t *testing.T) {
		var link *Outgoing
		source := count(2)
		c := served(t, &testPeer{outgoing: func(l *Outgoing) (func(context.Context) error, error) {
			link = l
			return source.open(l)
		}}, nil, nil)
		r := attached(t, c)
		r.Flow(2)
		synctest.Wait()
		link.Detach(Errorf(CondStolen, "by another"))
		<-r.Done()
		wantCondition(t, r.Err(), CondStolen)
		check(t, take(t, r, 2), 0) // what came before
		if err := r.Detach(t.Context()); err == nil {
			t.Error("a link is detached twice")
		}
		again := attached(t, c)
		again.Flow(1)
		check(t, take(t, again, 1), 0)
	})
	bubble(t, "connection dropped", func(t *testing.T) {
		var link *Outgoing
		c := served(t, &testPeer{outgoing: func(l *Outgoing) (func(context.Context) error, error) {
			link = l
			return count(0).open(l)
		}}, nil, nil)
		r := attached(t, c)
		synctest.Wait() // a write of the client's would fail with another error
		link.DropConnection()
		<-r.Done()
		if !errors.Is(r.Err(), io.EOF) || !errors.Is(c.Err(), io.EOF) {
			t.Errorf("link %v, connection %v", r.Err(), c.Err())
		}
		if _, err := c.Attach(t.Context(), &ReceiverConfig{}); !errors.Is(err, io.EOF) {
			t.Errorf("attach: %v", err)
		}
	})
	bubble(t, "server closed", func(t *testing.T) {
		peer := &testPeer{outgoing: count(0).open, closed: make(chan struct{})}
		srv := NewServer(func(*Conn) Peer { return peer }, nil)
		near, far := pipe()
		srv.start(far)
		c, err := NewClient(t.Context(), near, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := attached(t, c)
		srv.Close()
		<-r.Done()
		wantCondition(t, r.Err(), CondConnectionForced)
		c.Close(t.Context())
	})
	bubble(t, "closed by the client", func(t *testing.T) {
		peer := &testPeer{outgoing: count(0).open}
		c := served(t, peer, nil, nil)
		r := attached(t, c)
		c.Close(t.Context())
		<-r.Done()
		<-peer.closed
		if !errors.Is(r.Err(), ErrLinkClosed) || !errors.Is(c.Err(), ErrLinkClosed) {
			t.Errorf("link %v, connection %v", r.Err(), c.Err())
		}
	})
}

// webSocketLike fails a Read after its deadline with the error of a context, as the WebSocket
// library does.
type webSocketLike struct{ net.Conn }

func (c webSocketLike) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("failed to get reader: %w", context.Canceled)
	}
	return n, err
}

// Neither side's silence goes unnoticed, and a live connection stays.
func TestIdleClient(t *testing.T) {
	bubble(t, "heartbeats", func(t *testing.T) {
		c := served(t, &testPeer{}, &Config{IdleTimeout: time.Second}, &ClientConfig{IdleTimeout: time.Second})
		sleep(time.Hour)
		if c.Err() != nil {
			t.Errorf("the connection has ended: %v", c.Err())
		}
	})
	bubble(t, "silent server", func(t *testing.T) {
		near, far := pipe()
		go answerOpen(far, &open{maxFrameSize: 512})
		c, err := NewClient(t.Context(), near, &ClientConfig{IdleTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-c.Done()
		var timeout net.Error
		if d := time.Since(began); d != 10*time.Second || !errors.As(c.Err(), &timeout) || !timeout.Timeout() {
			t.Errorf("after %v: %v", d, c.Err())
		}
		c.Close(t.Context())
	})
	bubble(t, "silent server, over a connection that reports its deadline as a WebSocket does", func(t *testing.T) {
		near, far := pipe()
		go answerOpen(far, &open{maxFrameSize: 512})
		c, err := NewClient(t.Context(), webSocketLike{near}, &ClientConfig{IdleTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if !errors.Is(c.Err(), os.ErrDeadlineExceeded) || errors.Is(c.Err(), context.Canceled) {
			t.Errorf("got %v", c.Err())
		}
		c.Close(t.Context())
	})
	bubble(t, "server that does not read", func(t *testing.T) {
		near, far := pipe()
		hold := make(chan struct{})
		go func() {
			answerOpen(far, &open{maxFrameSize: 512})
			<-hold
			far.Close()
		}()
		c, err := NewClient(t.Context(), near, &ClientConfig{IdleTimeout: time.Hour, WriteTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Attach(ctx, &ReceiverConfig{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("attach: %v", err)
		}
		<-c.Done()
		if d := time.Since(began); d != time.Minute {
			t.Errorf("ended after %v with %v", d, c.Err())
		}
		c.Close(t.Context())
		close(hold)
	})
	bubble(t, "server that asks and does not read", func(t *testing.T) {
		near, far := pipe()
		go func() {
			answerOpen(far, &open{maxFrameSize: 512})
			_, _ = far.Read(make([]byte, 1000)) // the begin
			_, err := far.Write(encoded(&begin{hasRemote: true, incomingWindow: 10}))
			for err == nil {
				_, err = far.Write(encoded(&flow{hasIncomingID: true, incomingWindow: 10, echo: true}))
			}
			far.Close()
		}()
		c, err := NewClient(t.Context(), near, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.begin(); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		// The server has not said so: an [Error] with a condition would be taken for its own.
		if e := new(Error); errors.As(c.Err(), &e) || !strings.Contains(c.Err().Error(), "does not read") {
			t.Errorf("ended with %v", c.Err())
		}
		c.Close(t.Context())
	})
	bubble(t, "silent handshake", func(t *testing.T) {
		near, far := pipe()
		defer far.Close()
		go io.Copy(io.Discard, far)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := NewClient(ctx, near, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// answerOpen does a server's part of the handshake.
func answerOpen(nc net.Conn, p *open) {
	in := make([]byte, 1000)
	answer := func(b []byte) {
		_, _ = nc.Read(in)
		_, _ = nc.Write(b)
	}
	b, at := beginFrame(headerSASL[:8:8], frameSASL, 0)
	answer(endFrame((&saslMechanisms{names: Mechanisms}).encode(b), at))
	b, at = beginFrame(nil, frameSASL, 0)
	answer(endFrame((&saslOutcome{}).encode(b), at))
	answer(headerAMQP[:])
	answer(encoded(p))
}

func TestClientHandshake(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP":      "HTTP/1.1 400 Bad Request\r\n\r\n",
		"AMQP 0.9":  "AMQP\x00\x00\x09\x01",
		"no frame":  string(headerSASL[:]) + "\x00\x00\x00\x03\x02\x01\x00\x00",
		"ends":      string(headerSASL[:]),
		"no SASL":   string(headerSASL[:]) + string(encoded(&open{})),
		"mechanism": string(headerSASL[:]) + saslFrame(&saslMechanisms{names: []Symbol{"PLAIN"}}),
		"refused":   string(headerSASL[:]) + saslFrame(&saslMechanisms{names: Mechanisms}) + saslFrame(&saslOutcome{code: saslAuth}),
		"busy":      string(headerSASL[:]) + saslFrame(&saslMechanisms{names: Mechanisms}) + saslFrame(&saslOutcome{code: 4}),
	} {
		bubble(t, name, func(t *testing.T) {
			near, far := pipe()
			var work sync.WaitGroup
			work.Go(func() { _, _ = io.Copy(io.Discard, far) })
			work.Go(func() {
				_, _ = io.WriteString(far, answer)
				if name == "ends" {
					far.Close()
				}
			})
			c, err := NewClient(t.Context(), near, nil)
			if err == nil {
				c.Close(t.Context())
				t.Fatal("connected")
			}
			switch name {
			case "refused":
				wantCondition(t, err, CondUnauthorized)
			case "busy":
				wantCondition(t, err, CondInternal)
			}
			work.Wait() // the client has closed the connection
		})
	}
}

func saslFrame(p performative) string {
	b, at := beginFrame(nil, frameSASL, 0)
	return string(endFrame(p.encode(b), at))
}

// cbs is a node that answers put-token requests.
type cbs struct {
	mu       sync.Mutex
	requests []*Message
	answer   Map
	replies  chan []byte
}

func newCBS(answer Map) *cbs { return &cbs{answer: answer, replies: make(chan []byte, 10)} }

func (n *cbs) peer() *testPeer {
	return &testPeer{
		incoming: func(l *Incoming) (func(context.Context) error, error) {
			if l.Address() != cbsNode {
				return nil, Errorf(CondNotFound, "%s", l.Address())
			}
			return func(ctx context.Context) error {
				for {
					ds, err := l.Next(ctx)
					if err != nil {
						return err
					}
					for _, d := range ds {
						m, err := ParseMessage(d.Payload)
						if err != nil {
							return err
						}
						n.mu.Lock()
						n.requests = append(n.requests, m)
						n.mu.Unlock()
						n.replies <- (&Message{CorrelationID: m.MessageID, Properties: n.answer}).Encode(nil)
					}
					l.Settle(ds, nil)
				}
			}, nil
		},
		outgoing: func(l *Outgoing) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				for {
					if _, err := l.WaitCredit(ctx); err != nil {
						return err
					}
					select {
					case m := <-n.replies:
						if _, err := l.Send(1, 0, func(b []byte, _ int) []byte { return append(b, m...) }); err != nil {
							return err
						}
					case <-ctx.Done():
						return nil
					}
				}
			}, nil
		},
	}
}

func TestPutToken(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	token := Token{Value: strings.Repeat("t", 3000), Type: "jwt", Audience: "amqps://host/hub", Expires: at}
	bubble(t, "accepted, again and again", func(t *testing.T) {
		node := newCBS(Map{{"status-code", int32(202)}})
		c := served(t, node.peer(), nil, nil)
		for range 3 {
			if err := c.PutToken(t.Context(), token); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.sessions) != 0 || len(node.requests) != 3 {
			t.Errorf("%d sessions are left, %d requests came", len(c.sessions), len(node.requests))
		}
		m := node.requests[2]
		if m.Value != token.Value || m.Properties.String("operation") != "put-token" || m.Properties.String("type") != "jwt" ||
			m.Properties.String("name") != token.Audience || m.Properties.String("expiration") != "1800000000" || m.ReplyTo == "" {
			t.Errorf("request %+v", m)
		}
	})
	bubble(t, "refused", func(t *testing.T) {
		c := served(t, newCBS(Map{{"statusCode", int32(401)}, {"statusDescription", "not you"}}).peer(), nil, nil)
		err := c.PutToken(t.Context(), token)
		if s := new(StatusError); !errors.As(err, &s) || *s != (StatusError{401, "not you"}) {
			t.Errorf("got %v", err)
		}
		if c.Err() != nil {
			t.Errorf("the connection has ended: %v", c.Err())
		}
	})
	bubble(t, "no status", func(t *testing.T) {
		c := served(t, newCBS(nil).peer(), nil, nil)
		wantCondition(t, c.PutToken(t.Context(), token), CondDecode)
	})
	bubble(t, "no such node", func(t *testing.T) {
		c := served(t, &testPeer{}, nil, nil)
		wantCondition(t, c.PutToken(t.Context(), token), CondNotFound)
	})
	bubble(t, "no answer", func(t *testing.T) {
		peer := newCBS(nil).peer()
		peer.incoming = (&accepting{}).open
		c := served(t, peer, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.PutToken(ctx, token); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	bubble(t, "the link of the request is detached", func(t *testing.T) {
		peer := newCBS(nil).peer()
		peer.incoming = func(*Incoming) (func(context.Context) error, error) {
			return func(context.Context) error { return Errorf(CondUnauthorized, "not any more") }, nil
		}
		c := served(t, peer, nil, nil)
		wantCondition(t, c.PutToken(t.Context(), token), CondUnauthorized)
	})
	bubble(t, "a token larger than a frame", func(t *testing.T) {
		c := served(t, newCBS(nil).peer(), &Config{MaxFrameSize: 1024}, nil)
		wantCondition(t, c.PutToken(t.Context(), token), CondFrameSizeTooSmall)
	})
}
