package disklog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

const (
	stateFile       = "state"
	temporarySuffix = ".next" // suffix of a file that is to take another's place
)

// state is what the file of that name holds.
type state struct {
	First int64 `json:"first"` // sequence number of the oldest event that Trim has left
	Next  int64 `json:"next"`  // all events below were durable
}

func loadState(store storage) (state, error) {
	var s state
	text, err := store.read(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil || s.First < 0 || s.Next < s.First {
		return s, &CorruptError{File: filePath(store.path(), stateFile), Why: "not the state of a log"}
	}
	return s, nil
}

// saveState writes the state with first as the oldest event, if it has changed. The
// caller holds the turn.
func (l *Log) saveState(first int64) error {
	s := state{First: first, Next: l.next}
	if s == l.savedState {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = l.store.replace(stateFile, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	l.savedState = s
	return nil
}

// Trim removes the events below sequence number before, as far as there are
// any. Files that hold no other events are removed. The sequence numbers and
// offsets of later events are the same as without it.
func (l *Log) Trim(before int64) error {
	l.writeLock <- struct{}{}
	defer func() { <-l.writeLock }()
	before = min(before, l.next)
	switch {
	case l.isClosed():
		return ErrClosed
	case before <= l.first:
		return nil
	}
	if before == l.next && l.end > l.active().position && l.unusable == nil {
		// Nothing is left of the last segment either.
		if err := l.roll(); err != nil {
			return err
		}
	}
	if err := l.saveState(before); err != nil {
		return fmt.Errorf("trim log %s: %w", l.store.path(), err)
	}
	var idle []*segment
	l.mu.Lock()
	l.first = before
	for len(l.segments) > 1 && l.segments[1].sequence <= before {
		if l.retire(l.segments[0], true) {
			idle = append(idle, l.segments[0])
		}
		l.segments = l.segments[1:]
	}
	l.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, l.closeRetired(s))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("trim log %s: %w", l.store.path(), err)
	}
	return nil
}
