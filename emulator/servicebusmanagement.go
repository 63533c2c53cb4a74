package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

const (
	// maxPeek, maxTokens and maxNumbers limit what one request asks for.
	maxPeek    = 1000
	maxTokens  = 1000
	maxNumbers = 1000
	// maxSessions is how many sessions one request lists.
	maxSessions = 1000
)

// busOperation is a request to $management (Azure's "request-response-based operations").
type busOperation struct {
	right  Rights
	handle func(c *busPeer, n busNode, store *servicebus.Store, body amqp.Map) reply // store is nil for a topic
	topics bool                                                                      // topics support it, too
}

var busOperations = map[string]busOperation{
	"com.microsoft:peek-message":               {right: Listen, handle: (*busPeer).peek},
	"com.microsoft:renew-lock":                 {right: Listen, handle: (*busPeer).renew},
	"com.microsoft:update-disposition":         {right: Listen, handle: (*busPeer).settleByToken},
	"com.microsoft:receive-by-sequence-number": {right: Listen, handle: (*busPeer).receiveDeferred},
	"com.microsoft:schedule-message":           {right: Send, handle: (*busPeer).schedule, topics: true},
	"com.microsoft:cancel-scheduled-message":   {right: Send, handle: (*busPeer).cancelScheduled, topics: true},
	"com.microsoft:renew-session-lock":         {right: Listen, handle: (*busPeer).renewSession},
	"com.microsoft:get-session-state":          {right: Listen, handle: (*busPeer).sessionState},
	"com.microsoft:set-session-state":          {right: Listen, handle: (*busPeer).setSessionState},
	"com.microsoft:get-message-sessions":       {right: Listen, handle: (*busPeer).sessions},
}

// manage handles a request to $management; store is nil for a topic.
func (c *busPeer) manage(ctx context.Context, l *amqp.Link, n busNode, store *servicebus.Store, req *amqp.Message) (reply, error) {
	switch kind, err := c.inject(ctx, l, OnManage, n.entity); {
	case kind == FaultServerBusy && err == errServerBusy:
		return reply{status: http.StatusServiceUnavailable, description: errServerBusy.Description, condition: errServerBusy.Condition}, nil
	case err != nil:
		return reply{}, err
	}
	name := req.Properties.String("operation")
	op, ok := busOperations[name]
	if !ok || store == nil && !op.topics {
		return unsupported(name), nil
	}
	if !c.auth.holds(use{path: n.path, right: op.right}) {
		return reply{status: http.StatusUnauthorized, condition: amqp.CondUnauthorized, description: c.unauthorized(n.path, op.right).Description}, nil
	}
	body, _ := req.Value.(amqp.Map)
	return op.handle(c, n, store, body), nil
}

func unsupported(op string) reply {
	return reply{
		status: http.StatusBadRequest, condition: amqp.CondNotAllowed,
		description: fmt.Sprintf("The operation '%.100s' isn't supported here.", op),
	}
}

// failed is the reply for an error of the broker.
func (c *busPeer) failed(n busNode, err error) reply {
	var e *amqp.Error
	if !errors.As(c.explain(n, err), &e) {
		return reply{status: http.StatusInternalServerError, description: "the server failed to process the request", condition: amqp.CondInternal}
	}
	status := int32(http.StatusBadRequest)
	switch e.Condition {
	case condLockLost, condSessionLost:
		status = http.StatusGone
	case amqp.CondNotFound, condMessageNotFound:
		status = http.StatusNotFound
	}
	return reply{status: status, description: e.Description, condition: e.Condition}
}

func ok(value amqp.Map) reply {
	return reply{status: http.StatusOK, description: "OK", value: value}
}

func (c *busPeer) peek(n busNode, store *servicebus.Store, body amqp.Map) reply {
	from, ok1 := integer(body.Get("from-sequence-number"))
	count, ok2 := integer(body.Get("message-count"))
	if !ok1 || !ok2 || count < 1 {
		return badRequest("peek-message needs from-sequence-number, and a message-count above 0.")
	}
	var session *string
	if id, given := body.Get("session-id").(string); given {
		session = &id
	}
	ms, err := store.Peek(from, int(min(count, maxPeek)), maxStandard, session)
	switch {
	case err != nil:
		return c.failed(n, err)
	case len(ms) == 0:
		return reply{status: http.StatusNoContent, description: "No Content"}
	}
	list := make(amqp.List, len(ms))
	for i := range ms {
		list[i] = amqp.Map{{Key: "message", Value: appendBusMessage(nil, &ms[i], nil)}}
	}
	return ok(amqp.Map{{Key: "messages", Value: list}})
}

// tokensOf returns the lock tokens of a request.
func tokensOf(body amqp.Map) ([]amqp.UUID, bool) {
	array, _ := body.Get("lock-tokens").(amqp.Array)
	tokens, valid := array.UUIDs()
	return tokens, valid && len(tokens) > 0 && len(tokens) <= maxTokens
}

func (c *busPeer) renew(n busNode, store *servicebus.Store, body amqp.Map) reply {
	tokens, valid := tokensOf(body)
	if !valid {
		return badRequest("renew-lock needs lock-tokens, an array of UUIDs.")
	}
	until := make([]time.Time, len(tokens))
	for i, t := range tokens {
		var err error
		if until[i], err = store.Renew(servicebus.Token(t)); err != nil {
			return c.failed(n, err)
		}
	}
	return ok(amqp.Map{{Key: "expirations", Value: until}})
}

// settleByToken settles messages by lock token, for receivers whose link is closed.
func (c *busPeer) settleByToken(n busNode, store *servicebus.Store, body amqp.Map) reply {
	tokens, valid := tokensOf(body)
	if !valid {
		return badRequest("update-disposition needs lock-tokens, an array of UUIDs.")
	}
	properties, _ := body.Get("properties-to-modify").(amqp.Map)
	as := servicebus.Settlement{Edit: editProperties(properties, c.bus.azure.maxMessage())}
	switch status := body.String("disposition-status"); status {
	case "completed":
		as.Outcome = servicebus.Complete
	case "abandoned":
		as.Outcome = servicebus.Abandon
	case "suspended":
		as.Outcome, as.Reason, as.Description = servicebus.DeadLetter, body.String("deadletter-reason"), body.String("deadletter-description")
	case "defered": // as Azure spells it
		as.Outcome = servicebus.Defer
	default:
		return badRequest(fmt.Sprintf("update-disposition doesn't know the disposition-status '%.50s'.", status))
	}
	receipts := make([]servicebus.Receipt, len(tokens))
	for i, t := range tokens {
		receipts[i] = store.Settle(servicebus.Token(t), as)
	}
	var failed error
	for _, r := range receipts {
		if err := r.Wait(); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return c.failed(n, failed)
	}
	return ok(nil)
}

// numbersOf returns the sequence numbers of a request.
func numbersOf(body amqp.Map) ([]int64, bool) {
	array, _ := body.Get("sequence-numbers").(amqp.Array)
	numbers, valid := array.Longs()
	return numbers, valid && len(numbers) > 0 && len(numbers) <= maxNumbers
}

// receiveDeferred locks deferred messages by their sequence numbers, or deletes them,
// depending on the receive mode.
func (c *busPeer) receiveDeferred(n busNode, store *servicebus.Store, body amqp.Map) reply {
	numbers, valid := numbersOf(body)
	mode, _ := integer(body.Get("receiver-settle-mode"))
	if !valid || mode != 0 && mode != 1 {
		return badRequest("receive-by-sequence-number needs sequence-numbers, an array of longs, and a receiver-settle-mode of 0 or 1.")
	}
	got, err := store.ReceiveDeferred(numbers, body.String("session-id"))
	if err == nil && mode == 0 {
		err = completeAll(store, got)
	}
	if err != nil {
		return c.failed(n, err)
	}
	list := make(amqp.List, len(got))
	for i := range got {
		list[i] = amqp.Map{
			{Key: "lock-token", Value: amqp.UUID(got[i].Token)},
			{Key: "message", Value: appendBusMessage(nil, &got[i].Message, &got[i])},
		}
	}
	return ok(amqp.Map{{Key: "messages", Value: list}})
}

// schedule sends scheduled messages.
func (c *busPeer) schedule(n busNode, _ *servicebus.Store, body amqp.Map) reply {
	to, err := c.target(n)
	if err != nil {
		return c.failed(n, err)
	}
	list, _ := body.Get("messages").(amqp.List)
	if len(list) == 0 || len(list) > maxBatch {
		return badRequest("schedule-message needs messages, a list.")
	}
	ms := make([]servicebus.Message, len(list))
	for i := range list {
		entry, _ := list[i].(amqp.Map)
		encoded, isMessage := entry.Get("message").([]byte)
		if !isMessage {
			return badRequest("schedule-message needs an encoded message in each entry.")
		}
		if ms[i], err = busMessage(bytes.Clone(encoded)); err == nil {
			err = c.bus.azure.checkMessage(ms[i].Payload)
		}
		if err != nil {
			return c.failed(n, err)
		}
		if ms[i].Scheduled.IsZero() {
			return badRequest("schedule-message needs messages that are annotated with " + annScheduled + ".")
		}
	}
	numbers, receipt := to.Submit(ms)
	if err := receipt.Wait(); err != nil {
		return c.failed(n, err)
	}
	return ok(amqp.Map{{Key: "sequence-numbers", Value: numbers}})
}

func (c *busPeer) cancelScheduled(n busNode, _ *servicebus.Store, body amqp.Map) reply {
	numbers, valid := numbersOf(body)
	if !valid {
		return badRequest("cancel-scheduled-message needs sequence-numbers, an array of longs.")
	}
	to, err := c.target(n)
	if err == nil {
		err = to.Cancel(numbers).Wait()
	}
	if err != nil {
		return c.failed(n, err)
	}
	return ok(nil)
}

func (c *busPeer) renewSession(n busNode, store *servicebus.Store, body amqp.Map) reply {
	until, err := store.RenewSession(body.String("session-id"))
	if err != nil {
		return c.failed(n, err)
	}
	return ok(amqp.Map{{Key: "expiration", Value: until}})
}

func (c *busPeer) sessionState(n busNode, store *servicebus.Store, body amqp.Map) reply {
	state, err := store.SessionState(body.String("session-id"))
	if err != nil {
		return c.failed(n, err)
	}
	value := any(state)
	if state == nil {
		value = nil
	}
	return ok(amqp.Map{{Key: "session-state", Value: value}})
}

func (c *busPeer) setSessionState(n busNode, store *servicebus.Store, body amqp.Map) reply {
	state, valid := body.Get("session-state").([]byte)
	if !valid && body.Get("session-state") != nil {
		return badRequest("set-session-state needs a session-state, which is binary or null.")
	}
	if len(state) == 0 {
		state = nil // some clients clear it so, and read null then
	}
	if err := store.SetSessionState(body.String("session-id"), bytes.Clone(state)).Wait(); err != nil {
		return c.failed(n, err)
	}
	return ok(nil)
}

// anyTime is the last-updated-time, or a later one, by which clients ask for all sessions.
var anyTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// sessions lists sessions: all, or those whose state was set after the last-updated-time.
func (c *busPeer) sessions(n busNode, store *servicebus.Store, body amqp.Map) reply {
	skip, ok1 := integer(body.Get("skip"))
	top, ok2 := integer(body.Get("top"))
	switch {
	case !ok1 || !ok2 || skip < 0 || top < 1:
		return badRequest("get-message-sessions needs skip, which isn't negative, and top, which is positive.")
	case !store.InSessions():
		return c.failed(n, servicebus.ErrNoSessions)
	}
	var ids []string
	if after, given := body.Get("last-updated-time").(time.Time); given && after.Before(anyTime) {
		ids = store.StatesSince(after)
	} else {
		ids = store.Sessions()
	}
	ids = ids[min(skip, int64(len(ids))):]
	ids = ids[:min(top, maxSessions, int64(len(ids)))]
	if len(ids) == 0 {
		return reply{status: http.StatusNoContent, description: "No Content"}
	}
	return ok(amqp.Map{{Key: "skip", Value: int32(skip) + int32(len(ids))}, {Key: "sessions-ids", Value: ids}})
}
