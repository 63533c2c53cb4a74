package batch

import (
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine"
	"github.com/sluice-go/sluice/internal/engine/partition"
)

// handled returns the events that are handled, without those that the filter leaves out. A filter
// may take its time, so it is an activity, and ends with the assignment.
func (w *worker[Tx]) handled(events []*driver.Event) ([]*driver.Event, error) {
	cfg := w.a.Settings
	if cfg.Filter == nil || len(events) == 0 {
		return events, nil
	}
	defer w.a.Delivery.Doing(partition.ActivityFilter, events[0].Sequence, len(events)).Done()
	list := make([]*driver.Event, 0, len(events))
	for _, e := range events {
		if w.a.Idle.Err() != nil {
			return nil, w.a.Ended()
		}
		if cfg.Handles(e) {
			list = append(list, e)
		}
	}
	return list, nil
}

// culprits returns the events of a batch that a handler's error blames, each once, in order. The
// error counts the events that the handler got, the result all.
func culprits(failure error, events, handled []*driver.Event) []*driver.EventError {
	list := engine.Blamed(failure, len(handled))
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
