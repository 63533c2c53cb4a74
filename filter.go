package sluice

// handles reports whether an event is handled: see [Config].Filter.
func (cfg *Config) handles(e *Event) bool {
	if cfg.Filter == nil {
		return true
	}
	handled := true
	_ = guard(func() error { handled = cfg.Filter(e); return nil })
	return handled
}

// handled returns the events that are handled.
func (cfg *Config) handled(events []*Event) []*Event {
	if cfg.Filter == nil {
		return events
	}
	list := make([]*Event, 0, len(events))
	for _, e := range events {
		if cfg.handles(e) {
			list = append(list, e)
		}
	}
	return list
}

// culprits returns the events of a batch that a handler's error blames, each once, in order. The
// error counts the events that were handled, the result all.
func (cfg *Config) culprits(failure error, events []*Event) []*EventError {
	handled := cfg.handled(events)
	list := blamed(failure, len(handled))
	if len(handled) == len(events) {
		return list
	}
	at := 0
	for i, c := range list {
		for events[at] != handled[c.Index] {
			at++
		}
		list[i] = &EventError{Index: at, Err: c.Err}
	}
	return list
}
