package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/sluice-go/sluice/driver"
)

// Handler returns a handler for sluice.Batches. It posts the messages that records makes of a
// batch's events in the log's order, one request of a partition at a time, each with as many events
// as [Config] allows; FlushAfter and Concurrency have no effect. An error of records rejects the
// event unless it is a [driver.Outage], and an event without messages is done.
//
// What the receiver makes of a request means the same as for [Sink.Submit]. If it takes a part of a
// batch, the rest is posted without that part, under the same lease.
func (s *Sink) Handler(records func(context.Context, *driver.Event) ([]*Message, error)) func(context.Context, driver.Batch) error {
	h := &batchHandler{sink: s, records: records, failed: map[origin]*failedEvents{}}
	return h.handle
}

type batchHandler struct {
	sink    *Sink
	records func(context.Context, *driver.Event) ([]*Message, error)

	mu     sync.Mutex
	failed map[origin]*failedEvents // by the origin without incarnation and epoch
}

// failedEvents are those of a partition whose batches have failed: all of them are handled again,
// because the checkpoint cannot pass what failed.
type failedEvents struct {
	origin   origin
	messages map[int64][]*Message // by sequence number
}

// ordered is a message of a batch.
type ordered struct {
	*Message
	index int // of its event in the batch
}

func (h *batchHandler) handle(ctx context.Context, b driver.Batch) error {
	of := origin{b.Group.Namespace, b.Group.Topic, b.Group.Name, b.Incarnation, b.Partition, b.Epoch}
	if b.Redriven {
		list, _, err := h.messages(ctx, b, nil)
		if err != nil {
			return err
		}
		return h.sink.postAll(ctx, &of, list, true)
	}
	before := h.take(of)
	list, made, err := h.messages(ctx, b, before.messages)
	if err == nil {
		err = h.sink.postAll(ctx, &of, list, false)
	}
	if err == nil && len(b.Events) > 0 {
		// They are done, and those before them are done or dead letters. If they are handled once
		// more, it is to see whether the receiver works.
		last := b.Events[len(b.Events)-1].Sequence
		maps.DeleteFunc(before.messages, func(n int64, _ []*Message) bool { return n <= last })
	}
	if err != nil {
		for i, e := range b.Events {
			if made[i] != nil {
				before.messages[e.Sequence] = made[i]
			}
		}
	}
	h.keep(before)
	return err
}

// take removes and returns the partition's events whose batches have failed under this lease.
func (h *batchHandler) take(of origin) *failedEvents {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.failed[of.partitionOnly()]
	delete(h.failed, of.partitionOnly())
	if f == nil || f.origin != of {
		return &failedEvents{of, map[int64][]*Message{}}
	}
	return f
}

func (h *batchHandler) keep(f *failedEvents) {
	if len(f.messages) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed[f.origin.partitionOnly()] = f
}

func (o origin) partitionOnly() origin {
	o.incarnation, o.epoch = "", 0
	return o
}

// messages returns the messages of each event, and those among them that the receiver has not
// taken.
func (h *batchHandler) messages(ctx context.Context, b driver.Batch, before map[int64][]*Message) (list []ordered, made [][]*Message, err error) {
	made = make([][]*Message, len(b.Events))
	for i, e := range b.Events {
		if made[i] = before[e.Sequence]; made[i] == nil {
			var failure error
			made[i], failure = h.records(ctx, e)
			if errors.Is(failure, driver.ErrOutage) { // the next events would wait for it too
				return nil, made, fmt.Errorf("make records: %w", failure)
			}
			if failure != nil {
				err = errors.Join(err, &driver.EventError{Index: i, Err: driver.Reject(fmt.Errorf("make records: %w", failure))})
			}
		}
		for _, m := range made[i] {
			if !m.done {
				list = append(list, ordered{m, i})
			}
		}
	}
	return list, made, err
}

// postAll posts messages one request after the other, until one is not accepted as a whole.
func (s *Sink) postAll(ctx context.Context, of *origin, list []ordered, redriven bool) error {
	encoder := newEncoder(&s.cfg, of)
	for len(list) > 0 {
		n, err := s.postFirst(ctx, of, encoder, s.ahead(list), redriven)
		if err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// ahead returns the messages that may go into the next request: as many as it may have, since the
// last failure of one of them.
func (s *Sink) ahead(list []ordered) []ordered {
	most := int(s.most.Load())
	for i, m := range list {
		if m.limit > 0 {
			most = min(most, m.limit)
		}
		if i > 0 && i >= most {
			return list[:i]
		}
	}
	return list
}

// postFirst posts as many messages as fit into a request, and returns how many were accepted.
func (s *Sink) postFirst(ctx context.Context, of *origin, encoder *encoder, list []ordered, redriven bool) (int, error) {
	if err := s.holds(); err != nil {
		return 0, err
	}
	messages, size := make([]*Message, len(list)), 0
	for i, m := range list {
		messages[i] = m.Message
		size += estimate(m.Message)
	}
	body, n := encoder.batch(make([]byte, 0, min(size, s.cfg.MaxBytes+size/len(list))), messages, s.cfg.MaxBytes)
	messages, list = messages[:n], list[:n]
	for _, m := range messages {
		m.attempts++
	}
	a := s.post(ctx, of, messages, body)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	what := a.outcome()
	if a.retryAfter > 0 && (what == failed || what == waits) {
		s.hold(&a)
	}
	failure := a.err
	switch {
	case what == accepted:
		rejections, err := parseAnswer(&a, n)
		if err == nil {
			return n, s.settle(&posted{origin: *of, encoder: encoder}, list, &a, rejections)
		}
		failure = &Error{Endpoint: s.endpoint, Status: a.status, Err: err}
	case what == waits:
		return 0, driver.Outage(failure)
	case what == refused && n == 1:
		return 0, &driver.EventError{Index: list[0].index, Err: driver.Reject(failure.forEvent(list[0].Event))}
	case what == refused:
		return s.postFirst(ctx, of, encoder, list[:n/2], redriven)
	}
	if redriven { // a redrive that fails is a dead letter again: it needs no more proof than this
		if !s.accepts() {
			return 0, driver.Outage(failure)
		}
		return 0, &driver.EventError{Index: list[0].index, Err: failure.forEvent(list[0].Event)}
	}
	split, err := s.blame(messages, failure)
	switch {
	case split:
		return s.postFirst(ctx, of, encoder, list[:n/2], false)
	case n == 1:
		err = &driver.EventError{Index: list[0].index, Err: err}
	}
	return 0, err
}

// settle marks the messages that the receiver has taken, and returns the errors of the others.
func (s *Sink) settle(last *posted, list []ordered, a *answer, rejections []rejection) error {
	s.grow(len(list))
	var err error
	rejected := make(map[int]bool, len(rejections))
	for _, r := range rejections {
		rejected[r.index] = true
		err = errors.Join(err, &driver.EventError{Index: list[r.index].index, Err: s.rejection(a, r, list[r.index].Event)})
	}
	for i, m := range list {
		if m.done = !rejected[i]; m.done {
			last.message = *m.Message
		}
	}
	if last.message.Event != nil {
		s.lastPosted.Store(last)
		s.accepted.Add(1)
	}
	return err
}
