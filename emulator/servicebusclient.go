package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// busNode is the target of a link's address in a Service Bus namespace.
type busNode struct {
	node
	name         string // of the queue or topic
	subscription string
	deadLetters  bool // the dead letters
}

// parseBusAddress parses the address of a link:
//
//	$cbs
//	ENTITY                                    to send to
//	QUEUE, TOPIC/Subscriptions/NAME           to receive from, or their /$DeadLetterQueue
//	any of these/$management
//
// Names of entities may contain slashes.
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
	n.deadLetters = cut("$DeadLetterQueue")
	n.entity = strings.Join(part, "/")
	if last := len(part) - 1; last >= 2 && strings.EqualFold(part[last-1], "Subscriptions") {
		part, n.subscription = part[:last-1], part[last]
	}
	if n.name = strings.Join(part, "/"); n.name == "" || strings.Contains(n.name, "$") {
		return n, amqp.Errorf(amqp.CondNotFound, "The messaging entity '%.300s' could not be found.", n.path)
	}
	return n, nil
}

// busPeer is the server's side of one connection to a Service Bus namespace.
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
		l.LimitCredit(cbsCredit)
		return c.openCBS(true, func(ctx context.Context) error { return c.answer(ctx, l, n.node, c.putBusToken) })
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

// putBusToken handles a request to $cbs. A token for an entity that doesn't exist is
// refused, as on Azure: so clients learn of that before they open a link.
func (c *busPeer) putBusToken(ctx context.Context, l *amqp.Link, n node, req *amqp.Message) (reply, error) {
	r, err := c.putToken(ctx, l, n, req)
	path := pathOf(req.Properties.String("name"))
	if err != nil || r.status != http.StatusAccepted || path == "" {
		return r, err
	}
	at, err := parseBusAddress(path)
	if err == nil && at.special != cbsNode && !c.exists(at) {
		err = c.notFound(path)
	}
	var unknown *amqp.Error
	if errors.As(err, &unknown) {
		return reply{status: http.StatusNotFound, description: unknown.Description, condition: unknown.Condition}, nil
	}
	return r, err
}

func (c *busPeer) exists(n busNode) bool {
	if _, ok := c.bus.queue(n); ok {
		return true
	}
	_, ok := c.bus.broker.Topic(n.name)
	return ok && n.subscription == ""
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

// store returns the messages of a node.
func (c *busPeer) store(n busNode) (*servicebus.Store, error) {
	q, ok := c.bus.queue(n)
	switch {
	case !ok:
		return nil, c.notFound(n.path)
	case n.deadLetters:
		return q.DeadLetters(), nil
	}
	return q.Messages(), nil
}

// managed returns the messages that requests to a $management node are about; nil for a
// topic.
func (c *busPeer) managed(n busNode) (*servicebus.Store, error) {
	if _, ok := c.bus.broker.Topic(n.name); ok && n.subscription == "" && !n.deadLetters {
		return nil, nil
	}
	return c.store(n)
}

// target is a queue or topic: it accepts messages, and cancels scheduled ones.
type target interface {
	Submit([]servicebus.Message) ([]int64, servicebus.Receipt)
	Cancel([]int64) servicebus.Receipt
}

func (c *busPeer) target(n busNode) (target, error) {
	if n.subscription != "" || n.deadLetters {
		return nil, amqp.Errorf(amqp.CondNotAllowed, "'%.300s' is for receiving: send to the queue or topic", n.path)
	}
	if q, ok := c.bus.broker.Queue(n.name); ok {
		return q, nil
	}
	if t, ok := c.bus.broker.Topic(n.name); ok {
		return t, nil
	}
	return nil, c.notFound(n.path)
}

// Error conditions of Service Bus.
const (
	condLockLost        amqp.Symbol = "com.microsoft:message-lock-lost"
	condMessageNotFound amqp.Symbol = "com.microsoft:message-not-found"
	condSessionLost     amqp.Symbol = "com.microsoft:session-lock-lost"
	condSessionLocked   amqp.Symbol = "com.microsoft:session-cannot-be-locked"
	condDisabled        amqp.Symbol = "com.microsoft:entity-disabled"
	condTimeout         amqp.Symbol = "com.microsoft:timeout"
	condOutOfRange      amqp.Symbol = "com.microsoft:argument-out-of-range"
)

// explain converts the broker's errors to those of Azure.
func (c *busPeer) explain(n busNode, err error) error {
	var own *amqp.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &own):
		return own
	case errors.Is(err, servicebus.ErrLockLost):
		return amqp.Errorf(condLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue, "+
			"or was received by a different receiver instance.")
	case errors.Is(err, servicebus.ErrFull):
		return amqp.Errorf(amqp.CondResourceLimit, "The maximum entity size has been reached or exceeded for '%.300s'.", n.entity)
	case errors.Is(err, servicebus.ErrDeleted):
		return c.notFound(n.entity)
	case errors.Is(err, servicebus.ErrNotFound):
		return amqp.Errorf(condMessageNotFound, "Failed to lock one or more specified messages in '%.300s': %.200s", n.entity, err.Error())
	case errors.Is(err, servicebus.ErrSendDisabled):
		return amqp.Errorf(condDisabled, "Sending to '%.300s' is disabled.", n.entity)
	case errors.Is(err, servicebus.ErrReceiveDisabled):
		return amqp.Errorf(condDisabled, "Receiving from '%.300s' is disabled.", n.entity)
	case errors.Is(err, servicebus.ErrSessionNeeded):
		return amqp.Errorf(amqp.CondNotAllowed, "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "+
			"support enabled can only receive messages that have the SessionId set to a valid value.")
	case errors.Is(err, servicebus.ErrNoSessions):
		return amqp.Errorf(amqp.CondNotAllowed, "A sessionful message receiver cannot be created on an entity that does not require sessions.")
	case errors.Is(err, servicebus.ErrSessionLocked):
		return amqp.Errorf(condSessionLocked, "The requested session cannot be accepted. It may be locked by another receiver.")
	case errors.Is(err, servicebus.ErrSessionLost):
		return amqp.Errorf(condSessionLost, "The session lock has expired on the MessageSession. Accept a new MessageSession.")
	}
	return fmt.Errorf("%s: %w", n.entity, err)
}
