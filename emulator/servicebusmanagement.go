package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/bus"
)

const (
	// maxPeek and maxTokens bound what one request asks for.
	maxPeek   = 1000
	maxTokens = 1000
)

// manage handles a request to $management (Azure's "request-response-based operations"); store is nil for a topic.
func (c *busPeer) manage(ctx context.Context, l *amqp.Link, n busNode, store *bus.Store, req *amqp.Message) (reply, error) {
	switch kind, err := c.front.faults.strike(ctx, l, OnManage, n.entity, ""); {
	case kind == FaultServerBusy && err == errServerBusy:
		return reply{status: http.StatusServiceUnavailable, description: errServerBusy.Description, condition: errServerBusy.Condition}, nil
	case err != nil:
		return reply{}, err
	}
	c.auth.mu.Lock()
	allowed := c.auth.permits(use{path: n.path, right: Listen})
	c.auth.mu.Unlock()
	body, _ := req.Value.(amqp.Map)
	switch op := req.Properties.String("operation"); {
	case !allowed:
		return reply{
			status: http.StatusUnauthorized, condition: amqp.CondUnauthorized,
			description: fmt.Sprintf("Unauthorized access. 'Listen' claim(s) are required to perform this operation. Resource: '%s'.", c.resource(n.path)),
		}, nil
	case store == nil:
		return unsupported(op), nil
	case op == "com.microsoft:peek-message":
		return c.peek(n, store, body), nil
	case op == "com.microsoft:renew-lock":
		return c.renew(n, store, body), nil
	case op == "com.microsoft:update-disposition":
		return c.settleByToken(n, store, body), nil
	default:
		return unsupported(op), nil
	}
}

func unsupported(op string) reply {
	return reply{
		status: http.StatusBadRequest, condition: amqp.CondNotAllowed,
		description: fmt.Sprintf("The operation '%.100s' isn't supported here: there are no sessions, scheduled or deferred messages, and no rules.", op),
	}
}

// failed answers with an error of the broker.
func (c *busPeer) failed(n busNode, err error) reply {
	var e *amqp.Error
	if !errors.As(c.explain(n, err), &e) {
		return reply{status: http.StatusInternalServerError, description: "the server failed to process the request", condition: amqp.CondInternal}
	}
	status := int32(http.StatusBadRequest)
	switch e.Condition {
	case condLockLost:
		status = http.StatusGone
	case amqp.CondNotFound:
		status = http.StatusNotFound
	}
	return reply{status: status, description: e.Description, condition: e.Condition}
}

func (c *busPeer) peek(n busNode, store *bus.Store, body amqp.Map) reply {
	from, ok1 := integer(body.Get("from-sequence-number"))
	count, ok2 := integer(body.Get("message-count"))
	if !ok1 || !ok2 || count < 1 {
		return badRequest("peek-message needs from-sequence-number, and a message-count above 0.")
	}
	ms, err := store.Peek(from, int(min(count, maxPeek)), maxStandard)
	switch {
	case err != nil:
		return c.failed(n, err)
	case len(ms) == 0:
		return reply{status: http.StatusNoContent, description: "No Content"}
	}
	list := make(amqp.List, len(ms))
	for i := range ms {
		list[i] = amqp.Map{{Key: "message", Value: appendBusMessage(nil, &ms[i], time.Time{})}}
	}
	return reply{status: http.StatusOK, description: "OK", value: amqp.Map{{Key: "messages", Value: list}}}
}

// tokensOf reads the lock tokens of a request.
func tokensOf(body amqp.Map) ([]amqp.UUID, bool) {
	array, _ := body.Get("lock-tokens").(amqp.Array)
	tokens, ok := array.UUIDs()
	return tokens, ok && len(tokens) > 0 && len(tokens) <= maxTokens
}

func (c *busPeer) renew(n busNode, store *bus.Store, body amqp.Map) reply {
	tokens, ok := tokensOf(body)
	if !ok {
		return badRequest("renew-lock needs lock-tokens, an array of UUIDs.")
	}
	until := make([]time.Time, len(tokens))
	for i, t := range tokens {
		var err error
		if until[i], err = store.Renew(bus.Token(t)); err != nil {
			return c.failed(n, err)
		}
	}
	return reply{status: http.StatusOK, description: "OK", value: amqp.Map{{Key: "expirations", Value: until}}}
}

// settleByToken settles messages whose link is gone.
func (c *busPeer) settleByToken(n busNode, store *bus.Store, body amqp.Map) reply {
	tokens, ok := tokensOf(body)
	if !ok {
		return badRequest("update-disposition needs lock-tokens, an array of UUIDs.")
	}
	properties, _ := body.Get("properties-to-modify").(amqp.Map)
	var settle func(bus.Token) error
	switch status := body.String("disposition-status"); status {
	case "completed":
		settle = store.Complete
	case "abandoned":
		settle = func(t bus.Token) error { return store.Abandon(t, change(properties)) }
	case "suspended":
		settle = func(t bus.Token) error {
			return store.DeadLetter(t, body.String("deadletter-reason"), body.String("deadletter-description"), change(properties))
		}
	case "defered": // as Azure spells it
		return c.failed(n, notHere("Deferred messages"))
	default:
		return badRequest(fmt.Sprintf("update-disposition doesn't know the disposition-status '%.50s'.", status))
	}
	for _, t := range tokens {
		if err := settle(bus.Token(t)); err != nil {
			return c.failed(n, err)
		}
	}
	return reply{status: http.StatusOK, description: "OK"}
}
