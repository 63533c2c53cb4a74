package cosmos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// buffers are reused for the bodies of requests.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// send sends a batch. When it returns, each record is completed, queued again, or
// waiting for another queue.
func (q *queue) send(ctx context.Context, batch []*record) (f batchStats) {
	live := batch[:0]
	for _, r := range batch {
		if err := cmp.Or(r.ctx.Err(), q.sink.account.checkRegions(&r.doc)); err != nil {
			q.sink.finish(r, driver.WriteResult{Err: err, Cost: r.cost})
		} else {
			live = append(live, r)
		}
	}
	switch {
	case len(live) == 0:
		return f
	case q.sink.cfg.Mode == Point:
		return q.sendOne(ctx, live[0])
	}
	space := buffers.Get().(*[]byte)
	defer buffers.Put(space)
	body := append((*space)[:0], '[')
	for i, r := range live {
		if i > 0 {
			body = append(body, ',')
		}
		body = r.appendOperation(body)
	}
	body = append(body, ']')
	*space = body
	req := &request{method: http.MethodPost, kind: "docs", body: body, header: [][2]string{
		{"x-ms-cosmos-is-batch-request", "True"},
		{"x-ms-cosmos-batch-atomic", "false"},
		{"x-ms-cosmos-batch-continue-on-error", "true"},
		{"x-ms-documentdb-partitionkeyrangeid", q.id},
	}}
	if e := q.sink.account.send(ctx, req); e != nil {
		q.fail(live, e, e.outcome(), 0)
		return f
	}
	v := batchOutcomeOf(req.status, subStatus(req.head))
	if v == written {
		f, again := q.complete(live, req)
		if len(again) > 0 {
			f.add(q.sendParts(ctx, again))
		}
		return f
	}
	f.cost = charge(req.head)
	e, after := q.sink.account.errorOf(req), retryAfter(req.head)
	switch {
	case v == tooLarge || v == unprocessed || v == answerTooLarge:
		if len(live) > 1 || v != tooLarge {
			f.add(q.sendParts(ctx, live))
			return f
		}
		e.Document, v = live[0].doc.ID, rejected
	case req.status == http.StatusTooManyRequests:
		f.throttle(after)
	}
	q.fail(live, e, v, after)
	return f
}

// sendParts sends a batch again as two, or its only record in a request of its own. A
// document that makes the account refuse the whole batch must not block its partition
// for ever: sent alone, its status shows whether it is the cause.
func (q *queue) sendParts(ctx context.Context, batch []*record) (f batchStats) {
	if len(batch) == 1 {
		return q.sendOne(ctx, batch[0])
	}
	half := len(batch) / 2
	f = q.send(ctx, batch[:half])
	f.add(q.send(ctx, batch[half:]))
	return f
}

// fail completes all records of a batch with the same outcome.
func (q *queue) fail(batch []*record, e *Error, v outcome, after time.Duration) {
	if v == moved {
		q.sink.awaitRoutes(batch, q, e)
		return
	}
	for _, r := range batch {
		q.sink.finish(r, e.result(v, after, r.cost))
	}
}

// operation is the account's response for one record.
type operation struct {
	status, sub int
	retryAfter  time.Duration
	cost        float64
	etag        string
	body        []byte
}

// batchResult is the response to a batch while its records are completed.
type batchResult struct {
	batchStats
	activity string
	last     *Error    // the previous error, reused for equal ones
	again    []*record // for which there was no room in the answer
}

// complete completes each record of a batch with its own outcome. It returns the records
// that must be sent again, in smaller batches.
func (q *queue) complete(batch []*record, req *request) (batchStats, []*record) {
	l := batchResult{activity: firstLine(req.head.Get("x-ms-activity-id")), last: &Error{}}
	n := 0
	if valid := elements(req.answer.Bytes(), func([]byte) { n++ }); !valid || n != len(batch) {
		// Which outcome belongs to which operation is not known.
		e := q.sink.account.errorOf(req)
		e.Message = fmt.Sprintf("a response with %d outcomes for %d operations", n, len(batch))
		q.fail(batch, e, retryable, 0)
		return l.batchStats, nil
	}
	i := 0
	elements(req.answer.Bytes(), func(value []byte) {
		op := parseOperation(value, batch[i].doc.Source != nil)
		if outcomeOf(op.status, op.sub) == answerTooLarge {
			batch[i].cost += op.cost
			l.cost += op.cost
			l.again = append(l.again, batch[i])
		} else {
			q.completeOne(batch[i], &op, &l)
		}
		i++
	})
	return l.batchStats, l.again
}

func parseOperation(value []byte, version bool) (op operation) {
	members(value, func(name, value []byte) {
		switch string(name) {
		case "statusCode":
			op.status = integer(value)
		case "subStatusCode":
			op.sub = integer(value)
		case "requestCharge":
			if ru, err := strconv.ParseFloat(string(value), 64); err == nil && ru > 0 {
				op.cost = ru
			}
		case "retryAfterMilliseconds":
			op.retryAfter = milliseconds(strconv.ParseFloat(string(value), 64))
		case "eTag":
			if version {
				op.etag = unquote(value)
			}
		case "resourceBody":
			op.body = value
		}
	})
	if op.status == 0 {
		op.status = http.StatusBadGateway // no outcome at all
	}
	return op
}

// completeOne completes one record, or queues its next step.
func (q *queue) completeOne(r *record, op *operation, l *batchResult) {
	r.cost += op.cost
	l.cost += op.cost
	l.operations++
	if r.doc.Source != nil && q.advance(r, op) {
		return
	}
	if r.lookup != nil && r.answerLookup(op) {
		q.sink.finish(r, driver.WriteResult{Cost: r.cost})
		return
	}
	v := outcomeOf(op.status, op.sub)
	if v == written || r.step == remove && op.status == http.StatusNotFound && v == rejected {
		q.sink.finish(r, driver.WriteResult{Cost: r.cost})
		return
	}
	if op.status == http.StatusTooManyRequests {
		l.throttle(op.retryAfter)
	}
	e := l.last
	if e.Status != op.status || e.SubStatus != op.sub || e.Document != "" {
		e = &Error{Container: q.sink.account.name(), Status: op.status, SubStatus: op.sub, ActivityID: l.activity}
		l.last = e
	}
	if op.status == http.StatusConflict {
		e.Operation = r.doc.Operation
		if t := q.sink.routes.Load(); t != nil {
			e.UniqueKeys = t.unique
		}
		if e.Operation != Create {
			v = collision
		}
	}
	switch v {
	case rejected, collision:
		e.Document = r.doc.ID
	case moved:
		q.sink.awaitRoutes([]*record{r}, q, e)
		return
	}
	q.sink.finish(r, e.result(v, op.retryAfter, r.cost))
}

// sendOne sends a record in a request of its own.
func (q *queue) sendOne(ctx context.Context, r *record) batchStats {
	req := &request{method: http.MethodPost, kind: "docs", header: [][2]string{{"x-ms-documentdb-partitionkey", string(r.appendKey(nil, false))}}}
	switch r.step {
	case upsert:
		req.header = append(req.header, [2]string{"x-ms-documentdb-is-upsert", "True"})
	case replace:
		req.method, req.id = http.MethodPut, r.doc.ID
		if r.etag != "" {
			req.header = append(req.header, [2]string{"if-match", r.etag})
		}
	case patch:
		req.method, req.id = http.MethodPatch, r.doc.ID
		if r.etag != "" {
			req.header = append(req.header, [2]string{"if-match", r.etag})
		}
	case remove:
		req.method, req.id = http.MethodDelete, r.doc.ID
	case read:
		req.method, req.id = http.MethodGet, r.doc.ID
	}
	if r.step.hasBody() {
		req.body = r.appendBody(nil)
		req.header = append(req.header, [2]string{"Prefer", "return=minimal"})
	}
	if e := q.sink.account.send(ctx, req); e != nil {
		q.fail([]*record{r}, e, e.outcome(), 0)
		return batchStats{}
	}
	op := operation{
		status: req.status, sub: subStatus(req.head), retryAfter: retryAfter(req.head), cost: charge(req.head),
		etag: req.head.Get("etag"), body: req.answer.Bytes(),
	}
	l := batchResult{last: q.sink.account.errorOf(req)}
	if op.status == http.StatusNotFound && req.id == "" { // the container does not exist
		q.fail([]*record{r}, l.last, outage, 0)
		return l.batchStats
	}
	q.completeOne(r, &op, &l)
	return l.batchStats
}

// outcome returns the outcome of a request without a response.
func (e *Error) outcome() outcome {
	if transient(e.Err) {
		return retryable
	}
	return outage
}

func integer(value []byte) int {
	n, _ := strconv.Atoi(string(value))
	return n
}

// unquote returns the text of a JSON string.
func unquote(value []byte) (s string) {
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}
