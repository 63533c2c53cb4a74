package emulator

import (
	"context"

	"github.com/sluice-go/sluice/internal/amqp"
)

// maxRequest is the maximum size of a request to $cbs or $management, in bytes. Tokens
// are a few kilobytes.
const maxRequest = 64 << 10

// reply is the response to a request.
type reply struct {
	status      int32
	description string
	condition   amqp.Symbol // of an error
	value       any
}

// properties returns the reply's properties in both of Azure's spellings, because
// clients look for either.
func (r *reply) properties() amqp.Map {
	m := amqp.Map{
		{Key: "status-code", Value: r.status}, {Key: "status-description", Value: r.description},
		{Key: "statusCode", Value: r.status}, {Key: "statusDescription", Value: r.description},
	}
	if r.condition != "" {
		m = append(m, amqp.Pair{Key: "error-condition", Value: r.condition}, amqp.Pair{Key: "errorCondition", Value: r.condition})
	}
	return m
}

// handler answers a request. An error ends the link of the requests and that of the
// replies.
type handler func(context.Context, *amqp.Link, node, *amqp.Message) (reply, error)

// replies is a link on which a client receives replies.
type replies struct {
	link  *amqp.Link
	node  string
	names [2]string // the addresses that a request may give: the client's end of the link, and the link's name
	queue chan *amqp.Message
	done  chan struct{}
}

// openReplies returns the function that serves a link for replies.
func (p *peer) openReplies(l *amqp.Outgoing, n node) func(context.Context) error {
	r := &replies{
		link: l.Link, node: n.special, names: [2]string{l.ClientAddress(), l.Name()}, queue: make(chan *amqp.Message), done: make(chan struct{}),
	}
	p.mu.Lock()
	p.replies = append(p.replies, r)
	p.mu.Unlock()
	return func(ctx context.Context) error {
		defer p.closeReplies(r)
		for {
			l.Idle()
			select {
			case m := <-r.queue:
				if _, err := l.WaitCredit(ctx); err != nil {
					return err
				}
				if _, err := l.Send(1, 0, func(b []byte, _ int) []byte { return m.Encode(b) }); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (p *peer) closeReplies(r *replies) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(r.done)
	p.closed = r.names
	for i, o := range p.replies {
		if o == r {
			p.replies = append(p.replies[:i], p.replies[i+1:]...)
			return
		}
	}
}

// hasClosed reports whether the link for replies that ended last is the one that a request
// names. Its client has closed it, or is about to notice its end: a refusal of the request
// would look like a fault of the request.
func (p *peer) hasClosed(to string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return to != "" && (p.closed[0] == to || p.closed[1] == to)
}

// findReplies returns the link of the same node that a request's reply-to names; if
// there is none, the latest link of the node.
func (p *peer) findReplies(to string, n node) *replies {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found *replies
	for _, r := range p.replies {
		switch {
		case r.node != n.special:
		case to != "" && (r.names[0] == to || r.names[1] == to):
			return r
		default:
			found = r
		}
	}
	return found
}

// answer serves a link for requests.
func (p *peer) answer(ctx context.Context, l *amqp.Incoming, n node, handle handler) error {
	for {
		ds, err := l.Next(ctx)
		if err != nil {
			return err
		}
		for i := range ds {
			if err := p.answerOne(ctx, l, ds[i:i+1], n, handle); err != nil {
				return err
			}
		}
	}
}

func (p *peer) answerOne(ctx context.Context, l *amqp.Incoming, d []amqp.Delivery, n node, handle handler) error {
	if len(d[0].Payload) > maxRequest {
		l.Settle(d, amqp.Errorf(amqp.CondMessageSize, "the request has %d bytes: at most %d are allowed", len(d[0].Payload), maxRequest))
		return nil
	}
	req, err := amqp.ParseMessage(d[0].Payload)
	if err != nil {
		l.Settle(d, err)
		return nil
	}
	to := p.findReplies(req.ReplyTo, n)
	if to == nil {
		var refused error
		if !p.hasClosed(req.ReplyTo) {
			refused = amqp.Errorf(amqp.CondNotFound, "no link on this connection receives replies to '%.200s'", req.ReplyTo)
		}
		l.Settle(d, refused)
		return nil
	}
	l.Settle(d, nil)
	r, err := handle(ctx, l.Link, n, req)
	if err != nil {
		to.link.Detach(err)
		return err
	}
	m := &amqp.Message{CorrelationID: req.MessageID, Properties: r.properties(), Value: r.value}
	if m.CorrelationID == nil {
		m.CorrelationID = req.CorrelationID
	}
	select {
	case to.queue <- m:
	case <-to.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// openCBS makes sure that a connection has one pair of links to $cbs at a time, as on
// Azure.
func (p *peer) openCBS(incoming bool, run func(context.Context) error) (func(context.Context) error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cbs[incoming] {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "Only one link to '$cbs' in each direction is allowed on a connection: close the other first.")
	}
	p.cbs[incoming] = true
	return func(ctx context.Context) error {
		err := run(ctx)
		p.mu.Lock()
		p.cbs[incoming] = false
		p.mu.Unlock()
		return err
	}, nil
}
