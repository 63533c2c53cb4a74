package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/hub"
)

// client is the server's side of one connection.
type client struct {
	srv  *Server
	conn *amqp.Conn
	auth *authority

	mu      sync.Mutex
	cbs     map[bool]bool // open $cbs links: incoming, outgoing
	replies []*replies
}

func (s *Server) newClient(c *amqp.Conn) amqp.Peer {
	return &client{srv: s, conn: c, auth: newAuthority(s.keys), cbs: make(map[bool]bool)}
}

// Authenticate implements [amqp.Peer].
func (c *client) Authenticate(mechanism string, response []byte) error {
	if mechanism == "PLAIN" {
		return c.auth.plain(response)
	}
	return nil // the others prove nothing: the proof is a token, later
}

// Closed implements [amqp.Peer].
func (c *client) Closed() { c.auth.stop() }

// Incoming implements [amqp.Peer].
func (c *client) Incoming(l *amqp.Incoming) (func(context.Context) error, error) {
	n, err := parseAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		return c.openCBS(true, func(ctx context.Context) error { return c.answer(ctx, l, n, c.putToken) })
	case n.group != "":
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is to receive from, not to send to", n.path)
	}
	return c.admitted(l.Link, n, Send, func() (func(context.Context) error, error) {
		if n.special == managementNode {
			return func(ctx context.Context) error { return c.answer(ctx, l, n, c.manage) }, nil
		}
		return c.openSender(l, n)
	})
}

// Outgoing implements [amqp.Peer].
func (c *client) Outgoing(l *amqp.Outgoing) (func(context.Context) error, error) {
	n, err := parseAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		return c.openCBS(false, c.openReplies(l, n))
	case n.special == "" && n.group == "":
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is to send to: receive from %.300s/ConsumerGroups/GROUP/Partitions/ID", n.path, n.hub)
	}
	return c.admitted(l.Link, n, Listen, func() (func(context.Context) error, error) {
		if n.special == managementNode {
			return c.openReplies(l, n), nil
		}
		return c.openReceiver(l, n)
	})
}

// admitted opens a link that needs a right, if a token proves that. Without one the client doesn't even learn what there is.
func (c *client) admitted(l *amqp.Link, n node, right Rights, open func() (func(context.Context) error, error)) (func(context.Context) error, error) {
	needed := right
	if n.special == managementNode {
		needed = Listen | Send // whoever may do anything with a hub may look at it
	}
	leave, ok := c.auth.admit(l, use{path: n.path, right: needed})
	if !ok {
		return nil, amqp.Errorf(amqp.CondUnauthorized, "Unauthorized access. '%s' claim(s) are required to perform this operation. Resource: '%s'.",
			right, strings.ToLower(c.resource(n.path))) // in lower case, as Azure writes it
	}
	run, err := open()
	if err != nil {
		leave()
		return nil, err
	}
	forget := c.srv.links.add(l, n)
	return func(ctx context.Context) error {
		defer leave()
		defer forget()
		return run(ctx)
	}, nil
}

// resource is the address of an entity.
func (c *client) resource(path string) string {
	host := c.conn.Hostname()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return fmt.Sprintf("sb://%.200s/%.300s", host, path)
}

// lookup finds the hub and, where the node has one, the partition.
func (c *client) lookup(n node) (*hub.Hub, *hub.Partition, error) {
	h, ok := c.srv.broker.Hub(n.hub)
	if !ok {
		return nil, nil, c.noSuch(n.path)
	}
	if n.partition == "" {
		return h, nil, nil
	}
	p, ok := h.Partition(n.partition)
	if !ok {
		return nil, nil, amqp.Errorf(amqp.CondArgumentOutOfRange, "The specified partition is invalid for an EventHub partition sender or receiver. "+
			"It should be between 0 and %d.", len(h.PartitionIDs())-1)
	}
	return h, p, nil
}

func (c *client) noSuch(path string) *amqp.Error {
	return amqp.Errorf(amqp.CondNotFound, "The messaging entity '%s' could not be found.", c.resource(path))
}

// explain turns a broker's error into one for the client. Errors that concern only the server are left as they are.
func (c *client) explain(n node, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hub.ErrDeleted), errors.Is(err, hub.ErrUnknownGroup):
		return c.noSuch(n.path)
	case errors.Is(err, hub.ErrClosed):
		return amqp.Errorf(amqp.CondDetachForced, "the server is shutting down")
	}
	return fmt.Errorf("%s: %w", n.path, err)
}
