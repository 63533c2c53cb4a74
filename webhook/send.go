package webhook

import (
	"errors"
	"slices"
	"strconv"

	"github.com/sluice-go/sluice/driver"
)

// send sends a batch and completes each of its records.
func (q *queue) send(batch []*record) {
	for len(batch) > 0 {
		batch = batch[q.sendSome(batch):]
	}
}

// sendSome sends as many records of a batch as fit into a request, completes them, and returns
// how many they are.
func (q *queue) sendSome(batch []*record) int {
	s := q.sink
	if r := batch[0]; r.ctx.Err() != nil {
		s.finish(r, r.ctx.Err())
		return 1
	}
	if err := s.holds(); err != nil { // the answer to a part of the batch before this one asks for a wait
		q.fail(batch, err)
		return len(batch)
	}
	batch = upToEnded(batch)
	messages, size := make([]*Message, len(batch)), 0
	for i, r := range batch {
		messages[i] = r.message
		size += r.size
	}
	// Not reused: the transport may read it even after the answer.
	body, n := q.encoder.batch(make([]byte, 0, size), messages, s.cfg.MaxBytes)
	batch, messages = batch[:n], messages[:n]
	for _, m := range messages {
		m.attempts++
	}
	a := s.post(s.sending, &q.origin, messages, body)
	q.complete(batch, &a)
	return n
}

// upToEnded returns the first record, and those after it up to one whose context has ended.
func upToEnded(batch []*record) []*record {
	if i := slices.IndexFunc(batch[1:], func(r *record) bool { return r.ctx.Err() != nil }); i >= 0 {
		return batch[:i+1]
	}
	return batch
}

// complete completes the records of a request.
func (q *queue) complete(batch []*record, a *answer) {
	s := q.sink
	what := a.outcome()
	if a.retryAfter > 0 && (what == failed || what == waits) {
		s.hold(a)
	}
	switch what {
	case accepted:
		q.accept(batch, a)
	case refused:
		if len(batch) > 1 {
			half := len(batch) / 2
			q.send(batch[:half])
			q.send(batch[half:])
			return
		}
		s.finish(batch[0], driver.Reject(a.err.forEvent(batch[0].message.Event)))
	case failed:
		q.suspect(batch, a.err)
	case waits:
		q.fail(batch, driver.Outage(a.err))
	}
}

// outcome returns what an answer, or its lack, means for the events.
func (a *answer) outcome() outcome {
	switch {
	case a.status != 0:
		return outcomeOf(a.status)
	case reached(a.err.Err):
		return failed
	}
	return waits
}

// accept completes the records of a request that was answered with success.
func (q *queue) accept(batch []*record, a *answer) {
	s := q.sink
	rejections, err := parseAnswer(a, len(batch))
	if err != nil {
		q.suspect(batch, &Error{Endpoint: s.endpoint, Status: a.status, Err: err})
		return
	}
	s.grow(len(batch))
	errs := make([]error, len(batch))
	for _, r := range rejections {
		errs[r.index] = s.rejection(a, r, batch[r.index].message.Event)
	}
	if i := slices.Index(errs, nil); i >= 0 {
		s.lastPosted.Store(&posted{q.origin, q.encoder, *batch[i].message})
		s.accepted.Add(1)
	}
	for i, r := range batch {
		s.finish(r, errs[i])
	}
}

// rejection is the error of an event that an answer rejects.
func (s *Sink) rejection(a *answer, r rejection, event *driver.Event) error {
	e := &Error{Endpoint: s.endpoint, Status: a.status, Err: errRejected, Message: shown([]byte(r.text), s.secrets)}
	return driver.Reject(e.forEvent(event))
}

var errRejected = errors.New("the receiver rejects the event")

// fail completes records with the same error.
func (q *queue) fail(batch []*record, err error) {
	for _, r := range batch {
		q.sink.finish(r, err)
	}
}

// forEvent returns the error as that of one event.
func (e *Error) forEvent(event *driver.Event) *Error {
	own := *e
	own.Event = event.Partition + "/" + strconv.FormatInt(event.Sequence, 10)
	return &own
}
