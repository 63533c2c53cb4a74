package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluice-go/sluice/emulator/internal/eventhubs"
	"github.com/sluice-go/sluice/internal/amqp"
)

// hubPeer is the server's side of one connection to an Event Hubs namespace.
type hubPeer struct {
	*peer
	broker *eventhubs.Broker
	azure  *hubsAsAzure
}

// injectAttach injects the fault that matches a link about to be opened.
func (c *hubPeer) injectAttach(l *amqp.Link, n node) error {
	_, err := c.inject(context.Background(), l, OnAttach, n.entity, n.partition)
	return err
}

// Incoming implements [amqp.Peer].
func (c *hubPeer) Incoming(l *amqp.Incoming) (func(context.Context) error, error) {
	n, err := parseAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		l.LimitCredit(cbsCredit)
		return c.openCBS(true, func(ctx context.Context) error { return c.answer(ctx, l, n.node, c.putHubToken) })
	case n.group != "":
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is for receiving: send to the event hub or one of its partitions", n.path)
	}
	if n.special == managementNode { // each request is authorized, not the link, as on Azure
		l.LimitCredit(managementCredit)
		return func(ctx context.Context) error { return c.answer(ctx, l, n.node, c.manage) }, nil
	}
	return c.admitted(l.Link, n.node, Send, func() (func(context.Context) error, error) { return c.openSender(l, n) })
}

// Outgoing implements [amqp.Peer].
func (c *hubPeer) Outgoing(l *amqp.Outgoing) (func(context.Context) error, error) {
	n, err := parseAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		return c.openCBS(false, c.openReplies(l, n.node))
	case n.special == "" && n.group == "":
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is for sending: receive from %.300s/ConsumerGroups/GROUP/Partitions/ID", n.path, n.entity)
	}
	if n.special == managementNode {
		return c.openReplies(l, n.node), nil
	}
	return c.admitted(l.Link, n.node, Listen, func() (func(context.Context) error, error) { return c.openReceiver(l, n) })
}

// putHubToken handles a request to $cbs. A token for a hub that doesn't exist is refused, as
// on Azure: so clients learn of that before they open a link.
func (c *hubPeer) putHubToken(ctx context.Context, l *amqp.Link, n node, req *amqp.Message) (reply, error) {
	r, err := c.putToken(ctx, l, n, req)
	path := pathOf(req.Properties.String("name"))
	if err != nil || r.status != http.StatusAccepted {
		return r, err
	}
	at, err := parseAddress(path)
	if err != nil || at.entity == "" { // a token for the namespace, or above the hub
		return r, nil
	}
	if _, ok := c.broker.Hub(at.entity); !ok {
		return reply{status: http.StatusNotFound, description: c.notFound(at.entity).Description, condition: amqp.CondNotFound}, nil
	}
	return r, nil
}

// lookup returns the hub and, if the node has one, the partition.
func (c *hubPeer) lookup(n hubNode) (*eventhubs.Hub, *eventhubs.Partition, error) {
	h, ok := c.broker.Hub(n.entity)
	if !ok {
		return nil, nil, c.notFound(n.path)
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

// explain converts a broker's error to one for the client. It leaves errors of the
// server itself as they are.
func (c *hubPeer) explain(n hubNode, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, eventhubs.ErrDeleted), errors.Is(err, eventhubs.ErrUnknownGroup):
		return c.notFound(n.path)
	case errors.Is(err, eventhubs.ErrClosed):
		return amqp.Errorf(amqp.CondDetachForced, "the server is shutting down")
	}
	return fmt.Errorf("%s: %w", n.path, err)
}
