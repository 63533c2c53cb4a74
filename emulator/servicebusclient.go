package emulator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/bus"
)

// busNode is what a link's address stands for in a Service Bus namespace.
type busNode struct {
	node
	name         string // of the queue or topic
	subscription string
	dead         bool // the dead letters
}

// parseBusAddress takes apart the address of a link's node:
//
//	$cbs
//	ENTITY                                    to send to
//	QUEUE, TOPIC/Subscriptions/NAME           to receive from, or their /$DeadLetterQueue
//	any of these/$management
//
// Names of entities may hold slashes.
func parseBusAddress(address string) (n busNode, err error) {
	n.path = pathOf(address)
	part := strings.Split(n.path, "/")
	cut := func(name string) bool {
		last := len(part) - 1
		if last < 0 || !strings.EqualFold(part[last], name) {
			return false
		}
		part = part[:last]
		return true
	}
	switch {
	case cut(cbsNode):
		n.special = cbsNode
		return n, nil
	case cut(managementNode):
		n.special = managementNode
	}
	n.dead = cut("$DeadLetterQueue")
	n.entity = strings.Join(part, "/")
	if last := len(part) - 1; last >= 2 && strings.EqualFold(part[last-1], "Subscriptions") {
		part, n.subscription = part[:last-1], part[last]
	}
	if n.name = strings.Join(part, "/"); n.name == "" || strings.Contains(n.name, "$") {
		return n, amqp.Errorf(amqp.CondNotFound, "The messaging entity '%.300s' could not be found.", n.path)
	}
	return n, nil
}

// busPeer is the server's side of one connection.
type busPeer struct {
	*peer
	bus *ServiceBus
}

// Incoming implements [amqp.Peer].
func (c *busPeer) Incoming(l *amqp.Incoming) (func(context.Context) error, error) {
	n, err := parseBusAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		return c.openCBS(true, func(ctx context.Context) error { return c.answer(ctx, l, n.node, c.putToken) })
	}
	return c.admitted(l.Link, n.node, Send, func() (func(context.Context) error, error) {
		if n.special == "" {
			return c.openSender(l, n)
		}
		store, err := c.managed(n)
		if err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, l *amqp.Link, _ node, req *amqp.Message) (reply, error) {
			return c.manage(ctx, l, n, store, req)
		}
		return func(ctx context.Context) error { return c.answer(ctx, l, n.node, handle) }, nil
	})
}

// Outgoing implements [amqp.Peer].
func (c *busPeer) Outgoing(l *amqp.Outgoing) (func(context.Context) error, error) {
	n, err := parseBusAddress(l.Address())
	switch {
	case err != nil:
		return nil, err
	case n.special == cbsNode:
		return c.openCBS(false, c.openReplies(l, n.node))
	}
	return c.admitted(l.Link, n.node, Listen, func() (func(context.Context) error, error) {
		if n.special == managementNode {
			if _, err := c.managed(n); err != nil {
				return nil, err
			}
			return c.openReplies(l, n.node), nil
		}
		return c.openReceiver(l, n)
	})
}

// store finds the messages that a node stands for.
func (c *busPeer) store(n busNode) (*bus.Store, error) {
	q, ok := c.bus.queue(n)
	switch {
	case !ok:
		return nil, c.noSuch(n.path)
	case n.dead:
		return q.DeadLetters(), nil
	}
	return q.Messages(), nil
}

// managed finds the messages that requests to a $management node concern; a topic has none.
func (c *busPeer) managed(n busNode) (*bus.Store, error) {
	if _, ok := c.bus.broker.Topic(n.name); ok && n.subscription == "" && !n.dead {
		return nil, nil
	}
	return c.store(n)
}

const condLockLost amqp.Symbol = "com.microsoft:message-lock-lost"

// explain turns the broker's errors into those that Azure sends.
func (c *busPeer) explain(n busNode, err error) error {
	switch {
	case errors.Is(err, bus.ErrLockLost):
		return amqp.Errorf(condLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue, "+
			"or was received by a different receiver instance.")
	case errors.Is(err, bus.ErrFull):
		return amqp.Errorf(amqp.CondResourceLimit, "The maximum entity size has been reached or exceeded for '%.300s'.", n.entity)
	case errors.Is(err, bus.ErrDeleted):
		return c.noSuch(n.entity)
	case err == nil, errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%s: %w", n.entity, err)
}

// notHere refuses what the emulator leaves out, by a condition that clients don't try again on.
func notHere(what string) *amqp.Error {
	return amqp.Errorf(amqp.CondNotAllowed, "%s aren't supported here.", what)
}
