package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"github.com/sluice-go/sluice"
)

// Handler returns a handler for [sluice.Batches]. It posts the messages that records makes of a
// batch's events in the log's order, one request of a partition at a time, each with as many events
// as [Config] allows; FlushAfter and Concurrency have no effect. An error of records rejects the
// event unless it is a [sluice.Outage], and an event without messages is done.
//
// What the receiver makes of a request means the same as for [Sink.Submit]: an event that it names,
// or that it refuses alone, is rejected; a failure that one event can cause is that event's only if
// the receiver accepts what it has accepted before; everything else is an outage. If the receiver
// takes a part of a batch, the rest is posted without that part, under the same lease.
func (s *Sink) Handler(records func(context.Context, *sluice.Event) ([]*Message, error)) func(context.Context, sluice.Batch) error {
	h := &batchHandler{sink: s, records: records, parts: map[origin]*part{}}
	return h.handle
}

type batchHandler struct {
	sink    *Sink
	records func(context.Context, *sluice.Event) ([]*Message, error)

	mu    sync.Mutex
	parts map[origin]*part // of batches that failed, by the origin without incarnation and epoch
}

// part is what has become of a batch that failed, by sequence numbers. What the receiver has accepted
// of it is handled again too, because the checkpoint cannot pass what failed.
type part struct {
	of       origin
	accepted map[int64]bool
	attempts map[int64]int // requests with the event
}

func newPart(of origin) *part {
	return &part{of, map[int64]bool{}, map[int64]int{}}
}

// ordered is a message of a batch.
type ordered struct {
	*Message
	index int  // of its event in the batch
	last  bool // of its event
}

func (h *batchHandler) handle(ctx context.Context, b sluice.Batch) error {
	of := origin{b.Group.Namespace, b.Group.Topic, b.Group.Name, b.Incarnation, b.Partition, b.Epoch}
	p := newPart(of)
	if !b.Redriven {
		p = h.take(of)
	}
	messages, err := h.messages(ctx, b, p)
	if err == nil {
		err = h.post(ctx, messages, p)
	}
	if b.Redriven {
		return err
	}
	if err == nil && len(b.Events) > 0 {
		// They are done, and those before them are done or dead letters. If they are handled once more,
		// it is to see whether the receiver works.
		last := b.Events[len(b.Events)-1].Sequence
		maps.DeleteFunc(p.accepted, func(n int64, _ bool) bool { return n <= last })
		maps.DeleteFunc(p.attempts, func(n int64, _ int) bool { return n <= last })
	}
	h.keep(p)
	return err
}

// take removes and returns what has become of the partition's last batch.
func (h *batchHandler) take(of origin) *part {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.parts[of.partitionOnly()]
	delete(h.parts, of.partitionOnly())
	if p == nil || p.of != of {
		return newPart(of)
	}
	return p
}

func (h *batchHandler) keep(p *part) {
	if len(p.accepted)+len(p.attempts) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts[p.of.partitionOnly()] = p
}

func (o origin) partitionOnly() origin {
	o.incarnation, o.epoch = "", 0
	return o
}

// messages returns the messages of the events that the receiver has not accepted.
func (h *batchHandler) messages(ctx context.Context, b sluice.Batch, p *part) (list []ordered, err error) {
	for i, e := range b.Events {
		if p.accepted[e.Sequence] {
			continue
		}
		made, failure := h.records(ctx, e)
		if errors.Is(failure, sluice.ErrOutage) { // the next events would wait for it too
			return nil, fmt.Errorf("make records: %w", failure)
		}
		if failure != nil {
			err = errors.Join(err, &sluice.EventError{Index: i, Err: sluice.Reject(fmt.Errorf("make records: %w", failure))})
		}
		for j, m := range made {
			m.attempts = p.attempts[e.Sequence]
			list = append(list, ordered{m, i, j == len(made)-1})
		}
	}
	return list, err
}

// post posts messages one request after the other, and notes in p what becomes of them. It stops at
// the first request that is not accepted as a whole.
func (h *batchHandler) post(ctx context.Context, list []ordered, p *part) error {
	s, of := h.sink, &p.of
	encoder := newEncoder(&s.cfg, of)
	for len(list) > 0 {
		if err := s.holds(); err != nil {
			return err
		}
		messages, size := make([]*Message, min(len(list), s.cfg.MaxEvents)), 0
		for i := range messages {
			messages[i] = list[i].Message
			size += estimate(messages[i])
		}
		body, n := encoder.batch(make([]byte, 0, min(size, s.cfg.MaxBytes+size/len(messages))), messages, s.cfg.MaxBytes)
		for _, m := range messages[:n] {
			m.attempts++
			p.attempts[m.Event.Sequence] = m.attempts
		}
		a := s.post(ctx, of, messages[:n], body)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rejected, err := s.failure(&a, list[:n])
		if err != nil && rejected == nil {
			return err
		}
		for i, m := range list[:n] {
			if m.last && !rejected[i] {
				p.accepted[m.Event.Sequence] = true
				s.lastPosted.Store(&posted{&queue{sink: s, of: *of, encoder: encoder}, *m.Message})
			}
		}
		if err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// failure returns what an answer means for the messages of a request: which of them it rejects, nil
// if none was accepted, and the error for the engine.
func (s *Sink) failure(a *answer, list []ordered) (rejected map[int]bool, err error) {
	what := a.outcome()
	if a.after > 0 && (what == failed || what == waits) {
		s.hold(a)
	}
	switch {
	case what == accepted:
		rejections, err := parseAnswer(a.status, a.body, len(list))
		if err != nil {
			return nil, s.blame(&Error{Endpoint: s.endpoint, Status: a.status, Err: err}, list)
		}
		rejected, err := map[int]bool{}, error(nil)
		for _, r := range rejections {
			rejected[r.index] = true
			e := &Error{Endpoint: s.endpoint, Status: a.status, Err: errRejected, Message: shown([]byte(r.text), s.secrets)}
			err = errors.Join(err, &sluice.EventError{Index: list[r.index].index, Err: sluice.Reject(e.ofEvent(list[r.index].Event))})
		}
		return rejected, err
	case what == refused && len(list) == 1:
		return nil, &sluice.EventError{Index: list[0].index, Err: sluice.Reject(a.err.ofEvent(list[0].Event))}
	case what == refused:
		return nil, a.err // the engine halves the batch
	case what == failed:
		return nil, s.blame(a.err, list)
	}
	return nil, sluice.Outage(a.err)
}

// blame returns the error of a request whose failure one of its events may have caused. The engine
// halves a batch, and counts the attempts at an event that is alone.
func (s *Sink) blame(e *Error, list []ordered) error {
	switch {
	case len(list) > 1:
		return e
	case !s.accepts():
		return sluice.Outage(e)
	}
	return &sluice.EventError{Index: list[0].index, Err: e.ofEvent(list[0].Event)}
}

// ofEvent returns the error as that of one event.
func (e *Error) ofEvent(event *sluice.Event) *Error {
	own := *e
	own.Event = event.Partition + "/" + strconv.FormatInt(event.Sequence, 10)
	return &own
}
