package sluice

import "github.com/sluice-go/sluice/driver"

// handles reports whether an event is handled: see [Config].Filter.
func (s *Settings) handles(e *Event) bool {
	if s.Filter == nil {
		return true
	}
	handled := true
	_ = guard(func() error { handled = s.Filter(e); return nil })
	return handled
}

// handled returns the events that are handled.
func (s *Settings) handled(events []*Event) []*Event {
	if s.Filter == nil {
		return events
	}
	list := make([]*Event, 0, len(events))
	for _, e := range events {
		if s.handles(e) {
			list = append(list, e)
		}
	}
	return list
}

// handled returns the events that are handled, without those that the filter leaves out. A filter may
// take its time, so it is an activity, and ends with the assignment.
func (w *batchWorker[Tx]) handled(events []*Event) ([]*Event, error) {
	cfg := w.a.cfg
	if cfg.Filter == nil || len(events) == 0 {
		return events, nil
	}
	defer w.a.delivery.doing(activityFilter, events[0].Sequence, len(events)).done()
	list := make([]*Event, 0, len(events))
	for _, e := range events {
		if w.a.idle.Err() != nil {
			return nil, w.a.ended()
		}
		if cfg.handles(e) {
			list = append(list, e)
		}
	}
	return list, nil
}

// culprits returns the events of a batch that a handler's error blames, each once, in order. The
// error counts the events that the handler got, the result all.
func culprits(failure error, events, handled []*Event) []*driver.EventError {
	list := blamed(failure, len(handled))
	if len(handled) == len(events) {
		return list
	}
	at := 0
	for i, c := range list {
		for events[at] != handled[c.Index] {
			at++
		}
		list[i] = &driver.EventError{Index: at, Err: c.Err}
	}
	return list
}
