package amqp

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"
)

// Token proves the right to use a node.
type Token struct {
	// Value is the token, Type its kind: servicebus.windows.net:sastoken or jwt.
	Value, Type string
	// Audience is the URI of the node.
	Audience string
	// Expires is when the token becomes invalid; zero if that is not known.
	Expires time.Time
}

// StatusError is a refusal of a request to a node such as $cbs. Its code follows those of HTTP.
type StatusError struct {
	Code        int
	Description string
}

func (e *StatusError) Error() string {
	if e.Description == "" {
		return fmt.Sprintf("status %d", e.Code)
	}
	return fmt.Sprintf("status %d: %s", e.Code, e.Description)
}

// PutToken authorises the connection by a token, which it sends to the node $cbs (AMQP Claims-based
// Security 1.0, section 3, as Azure has it), in a session of its own. It waits for the answer until
// ctx ends. A refusal is a [*StatusError]. A token is renewed by another call, before it expires.
func (c *Client) PutToken(ctx context.Context, t Token) error {
	c.tokens.Lock()
	defer c.tokens.Unlock()
	s, err := c.begin()
	if err != nil {
		return err
	}
	err = s.putToken(ctx, t)
	s.end(ctx)
	return err
}

const cbsNode = "$cbs"

func (s *clientSession) putToken(ctx context.Context, t Token) error {
	replyTo := "cbs-reply-to-" + rand.Text()
	out := new(clientSender)
	err := s.attach(out, &attach{sndSettle: senderSettled, source: &terminus{address: replyTo}, target: &terminus{address: cbsNode}})
	if err != nil {
		return err
	}
	in, err := s.receiver(&ReceiverConfig{Source: cbsNode, Target: replyTo, Settled: true})
	if err != nil {
		return err
	}
	if err := out.await(ctx); err != nil {
		return err
	}
	if err := in.await(ctx); err != nil {
		return err
	}
	in.Flow(1)
	expires := "0"
	if !t.Expires.IsZero() {
		expires = strconv.FormatInt(t.Expires.Unix(), 10)
	}
	request := Message{
		MessageID: replyTo, ReplyTo: replyTo, Value: t.Value,
		Properties: Map{{"operation", "put-token"}, {"type", t.Type}, {"name", t.Audience}, {"expiration", expires}},
	}
	if err := out.send(ctx, request.Encode(nil)); err != nil {
		return err
	}
	for {
		if answers := in.Take(nil); len(answers) > 0 {
			answer, err := ParseMessage(answers[0])
			if err != nil {
				return err
			}
			return statusOf(answer)
		}
		select {
		case <-in.Arrived():
		case <-in.Done():
			return in.Err()
		case <-out.done:
			return out.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// statusOf returns the error in an answer, nil if it is none.
func statusOf(m *Message) error {
	var code int64
	for _, name := range []string{"status-code", "statusCode"} {
		switch v := m.Properties.Get(name).(type) {
		case int32:
			code = int64(v)
		case int64:
			code = v
		}
	}
	description := m.Properties.String("status-description")
	if description == "" {
		description = m.Properties.String("statusDescription")
	}
	switch {
	case code == 0:
		return Errorf(CondDecode, "an answer of %s without a status code", cbsNode)
	case code < 200 || code > 299:
		return &StatusError{Code: int(code), Description: description}
	}
	return nil
}

// clientSender is a link on which the client sends settled messages.
type clientSender struct {
	clientLink

	// Guarded by Client.mu.
	deliveryCount, credit uint32
}

// onFlow sets the credit that the server grants (section 2.6.7).
func (l *clientSender) onFlow(p *flow) {
	if p.hasCredit {
		l.credit = p.deliveryCount + p.credit - l.deliveryCount
	}
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// send sends a message once there is credit for it. It must fit into one frame.
func (l *clientSender) send(ctx context.Context, message []byte) error {
	c := l.s.c
	for {
		c.mu.Lock()
		if l.credit > 0 {
			break
		}
		c.mu.Unlock()
		select {
		case <-l.signal:
		case <-l.done:
			return l.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer c.mu.Unlock()
	c.push(l.s.channel, &transfer{handle: l.handle, deliveryID: l.deliveryCount, hasID: true, settled: true}, message...)
	l.deliveryCount++
	l.credit--
	l.s.nextOutgoingID++
	return l.err
}
