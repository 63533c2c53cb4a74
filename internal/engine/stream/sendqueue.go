package stream

import (
	"container/heap"
	"time"
)

// sendQueue holds the records that the worker has still to submit. The worker's
// goroutine alone uses it.
type sendQueue[R any] struct {
	first    []*recordTask[R] // submitted before the others: they were started earlier
	fresh    []*recordTask[R]
	redrives []*recordTask[R]   // fresh ones, of dead letters; they take turns with the events' records
	lines    map[string]line[R] // the unfinished records of each ordering key
	delayed  delayedRecords[R]
	redriven bool // the last fresh record that was taken is a redrive's
	blocked  int  // records that wait for an earlier one of their key
	doubted  int  // events with a record in doubt
	waiting  int  // other events with a record that waits for another event's of its key
	turn     bool // the last probe was taken from first
	// unmade are the events whose records could not be made yet, in their order. The
	// first one is queued to be tried again; the others wait for it. Redrives wait for
	// redrives only: no dead letter delays the partition.
	unmade, unmadeRedrives []*inFlightEvent
}

// line is the unfinished records of one ordering key. One of them was let go, the others wait.
type line[R any] struct {
	last    *inFlightEvent  // the event whose record was added last
	waiting *waitingLine[R] // nil: none waits
}

// waitingLine is the records that wait, of events and of redrives, which take turns: neither has to
// wait for all of the other.
type waitingLine[R any] struct {
	events, redrives recordList[R]
	redriven         bool // the last one that was let go is a redrive's
}

// recordList is a list of records, first in, first out.
type recordList[R any] struct{ first, last *recordTask[R] }

func (l *recordList[R]) push(t *recordTask[R]) {
	if l.first == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

func (l *recordList[R]) pop() *recordTask[R] {
	t := l.first
	l.first, t.next = t.next, nil
	return t
}

// next takes the record whose turn it is. It returns nil if none waits.
func (w *waitingLine[R]) next() *recordTask[R] {
	switch {
	case w == nil || w.events.first == nil && w.redrives.first == nil:
		return nil
	case w.redrives.first != nil && (w.events.first == nil || !w.redriven):
		w.redriven = true
		return w.redrives.pop()
	}
	w.redriven = false
	return w.events.pop()
}

func (q *sendQueue[R]) init() { q.lines = map[string]line[R]{} }

func (q *sendQueue[R]) len() int { return len(q.first) + len(q.fresh) + len(q.redrives) }

// redrivesOnly reports whether all records that may be submitted are those of redrives.
func (q *sendQueue[R]) redrivesOnly() bool {
	return len(q.redrives) > 0 && len(q.first)+len(q.fresh) == 0
}

// empty reports whether every admitted record was submitted or waits for a time or
// for another record.
func (q *sendQueue[R]) empty() bool { return q.len() == 0 }

// add queues a new record, after those of its key.
func (q *sendQueue[R]) add(t *recordTask[R]) {
	if t.ordered {
		l, waits := q.lines[t.key]
		if waits {
			q.wait(t, &l)
		}
		l.last = t.event
		q.lines[t.key] = l
		if waits {
			return
		}
	}
	if t.event.redrive != nil {
		q.redrives = append(q.redrives, t)
	} else {
		q.fresh = append(q.fresh, t)
	}
}

// wait has a record wait for its turn.
func (q *sendQueue[R]) wait(t *recordTask[R], l *line[R]) {
	if l.waiting == nil {
		l.waiting = &waitingLine[R]{}
	}
	if t.event.redrive != nil {
		l.waiting.redrives.push(t)
	} else {
		l.waiting.events.push(t)
	}
	q.blocked++
	if t.waits = l.last != t.event; t.waits {
		q.count(t.event, 0, 1)
	}
}

// retryNow queues a record again before the new ones.
func (q *sendQueue[R]) retryNow(t *recordTask[R]) { q.first = append(q.first, t) }

// retryAt queues a record again once its time has come.
func (q *sendQueue[R]) retryAt(t *recordTask[R], due time.Duration) {
	t.due = due
	heap.Push(&q.delayed, t)
}

// takeDelayed queues the records whose time has come.
func (q *sendQueue[R]) takeDelayed(now time.Duration) {
	for len(q.delayed) > 0 && q.delayed[0].due <= now {
		q.first = append(q.first, heap.Pop(&q.delayed).(*recordTask[R]))
	}
}

// pop removes the record that is to be submitted next. Probes are taken from those that were
// started earlier and from the fresh ones in turn, so that records that fail each time don't keep
// the others from being tried.
func (q *sendQueue[R]) pop(probe bool) (t *recordTask[R]) {
	if probe {
		q.turn = !q.turn
	}
	switch {
	case len(q.first) > 0 && (!probe || q.turn || len(q.fresh)+len(q.redrives) == 0):
		t, q.first = q.first[0], q.first[1:]
	case len(q.redrives) > 0 && (len(q.fresh) == 0 || !q.redriven):
		t, q.redrives, q.redriven = q.redrives[0], q.redrives[1:], true
	default:
		t, q.fresh, q.redriven = q.fresh[0], q.fresh[1:], false
	}
	return t
}

// trim releases the memory of queues that are empty.
func (q *sendQueue[R]) trim() {
	if len(q.first) == 0 {
		q.first = nil
	}
	if len(q.fresh) == 0 {
		q.fresh = nil
	}
	if len(q.redrives) == 0 {
		q.redrives = nil
	}
}

// unmadeBefore returns the list of unmade events that an event belongs to.
func (q *sendQueue[R]) unmadeBefore(e *inFlightEvent) *[]*inFlightEvent {
	if e.redrive != nil {
		return &q.unmadeRedrives
	}
	return &q.unmade
}

// recordsReady releases the events that wait for e, and returns them before more; call it once,
// when e's records exist or e has failed.
func (q *sendQueue[R]) recordsReady(e *inFlightEvent, more []*inFlightEvent) []*inFlightEvent {
	unmade := q.unmadeBefore(e)
	if len(*unmade) == 0 || (*unmade)[0] != e {
		return more
	}
	waiting := (*unmade)[1:]
	*unmade = nil
	return append(waiting, more...)
}

// unblock queues the next record of a finished record's key.
func (q *sendQueue[R]) unblock(t *recordTask[R]) {
	if !t.ordered {
		return
	}
	t.ordered = false
	next := q.lines[t.key].waiting.next()
	if next == nil {
		delete(q.lines, t.key)
		return
	}
	q.blocked--
	if next.waits {
		next.waits = false
		q.count(next.event, 0, -1)
	}
	q.first = append(q.first, next)
}

// endDoubt is called when a record is not in doubt any more.
func (q *sendQueue[R]) endDoubt(t *recordTask[R]) {
	if t.doubted {
		t.doubted = false
		q.count(t.event, -1, 0)
	}
}

// count changes how many of an event's records are in doubt, and how many are blocked.
// Redrives are not counted: they are on no work list.
func (q *sendQueue[R]) count(e *inFlightEvent, doubted, blocked int32) {
	if e.redrive != nil {
		return
	}
	q.tally(e, -1)
	e.doubted += doubted
	e.blocked += blocked
	q.tally(e, 1)
}

// tally adds an event to the counts that it belongs to, or takes it from them.
func (q *sendQueue[R]) tally(e *inFlightEvent, n int) {
	switch {
	case e.doubted > 0:
		q.doubted += n
	case e.blocked > 0:
		q.waiting += n
	}
}

// delayedRecords is a heap with the record that is due next on top.
type delayedRecords[R any] []*recordTask[R]

func (h delayedRecords[R]) Len() int           { return len(h) }
func (h delayedRecords[R]) Less(i, j int) bool { return h[i].due < h[j].due }
func (h delayedRecords[R]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *delayedRecords[R]) Push(x any) { *h = append(*h, x.(*recordTask[R])) }

// Pop implements heap.Interface.
func (h *delayedRecords[R]) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
