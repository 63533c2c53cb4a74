package disklog

import (
	"errors"
	"fmt"
)

// Trim removes the events below sequence number before. Files that hold no other
// events are removed. The sequence numbers and offsets of later events do not
// change.
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
		// The last segment has no events left either.
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
