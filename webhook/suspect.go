package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// A failure such as 500, a time-out or a lost connection can be an outage, or one event can make
// the receiver fail. The difference is whether the receiver accepts other events meanwhile. So the
// events of a failed batch are sent in smaller ones. An event that fails alone is to blame only if
// the receiver has accepted something since the event's failure before; if nothing new was sent,
// what it has accepted last is posted again.

// maxStrikes is how often an event may fail alone, while the receiver accepts others, before its
// failures count as attempts. A receiver that fails at random must not make dead letters.
const maxStrikes = 6

// firstWait is the wait after the first strike. It doubles with each.
const firstWait = 100 * time.Millisecond

// posted is an event that the receiver has accepted.
type posted struct {
	origin  origin
	encoder *encoder
	message Message
}

// suspect completes the records of a request whose failure one of them may have caused.
func (q *queue) suspect(batch []*record, e *Error) {
	messages := make([]*Message, len(batch))
	for i, r := range batch {
		messages[i] = r.message
	}
	split, err := q.sink.blame(messages, e)
	if split {
		q.send(batch[:len(batch)/2])
		q.send(batch[len(batch)/2:])
		return
	}
	q.fail(batch, err)
}

// blame returns the error of the messages of a request whose failure one of them may have caused,
// or that they are to be posted at once in two halves.
func (s *Sink) blame(messages []*Message, e *Error) (split bool, err error) {
	n, now := len(messages), s.accepted.Load()
	slow := errors.Is(e, context.DeadlineExceeded)
	if slow {
		s.shrink(n)
	}
	works := now > s.failedAt.Swap(now)
	if n == 1 {
		return false, s.verdict(messages[0], e, now)
	}
	for _, m := range messages {
		m.failed, m.accepted, m.limit = true, now, n/2
	}
	return works && !slow, driver.Outage(e)
}

// verdict returns the error of a message that failed alone.
func (s *Sink) verdict(m *Message, e *Error, now uint64) error {
	others := m.failed && (now > m.accepted || s.accepts())
	m.failed, m.accepted, m.limit = true, s.accepted.Load(), 1
	switch {
	case !others || s.sending.Err() != nil:
		return driver.Outage(e)
	case m.strikes < maxStrikes:
		m.strikes++
		return driver.RetryAfter(e, firstWait<<(m.strikes-1))
	}
	return e.forEvent(m.Event) // the engine counts it
}

// accepts reports whether the receiver accepts what it has accepted before.
func (s *Sink) accepts() bool {
	last := s.lastPosted.Load()
	if last == nil || s.holds() != nil {
		return false
	}
	m := last.message
	body, _ := last.encoder.batch(nil, []*Message{&m}, s.cfg.MaxBytes)
	m.attempts++
	a := s.post(s.sending, &last.origin, []*Message{&m}, body)
	if a.outcome() != accepted {
		return false
	}
	rejections, err := parseAnswer(&a, 1)
	if err != nil || len(rejections) > 0 {
		return false
	}
	s.accepted.Add(1)
	return true
}

// shrink makes batches smaller after a time-out of so many events.
func (s *Sink) shrink(n int) {
	for most := s.most.Load(); most > 1 && int64(n) <= most; most = s.most.Load() {
		if s.most.CompareAndSwap(most, max(1, int64(n)/2)) {
			return
		}
	}
}

// grow makes batches larger again after one as large as they may be.
func (s *Sink) grow(n int) {
	if most := s.most.Load(); int64(n) >= most && most < int64(s.cfg.MaxEvents) {
		s.most.CompareAndSwap(most, min(int64(s.cfg.MaxEvents), most+1+most/8))
	}
}
