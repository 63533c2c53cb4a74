package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// record is a message without a result.
type record struct {
	ctx     context.Context
	message *Message
	done    func(driver.WriteResult)
	queued  time.Time
	size    int // about how many bytes it takes in a request
}

// lookEvery is how often a queue looks for records whose contexts have ended.
const lookEvery = 100 * time.Millisecond

// queue holds the records of one origin. It is one of its sink's queues while it has records or
// requests in flight, and as long its goroutine runs.
type queue struct {
	sink    *Sink
	origin  origin
	encoder *encoder
	wake    chan struct{} // signals the goroutine

	// The sink's mu guards the fields below.
	waiting  []*record
	bytes    int // of them
	inFlight int // requests
}

// queueOf returns the queue of an origin, and starts it if there is none. The caller holds s.mu.
func (s *Sink) queueOf(of origin) *queue {
	q := s.queues[of]
	if q == nil {
		q = &queue{sink: s, origin: of, encoder: newEncoder(&s.cfg, &of), wake: make(chan struct{}, 1)}
		s.queues[of] = q
		s.running.Go(q.work)
	}
	return q
}

// add queues a record. The caller holds the sink's mu.
func (q *queue) add(r *record) {
	q.waiting = append(q.waiting, r)
	q.bytes += r.size
	if n := len(q.waiting); n == 1 || q.full() {
		q.signal()
	}
}

// full reports whether the records fill a request.
func (q *queue) full() bool {
	return len(q.waiting) >= int(q.sink.most.Load()) || q.bytes >= q.sink.cfg.MaxBytes
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// work sends batches until there is nothing left to do.
func (q *queue) work() {
	s := q.sink
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	looked := time.Now()
	for {
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			q.giveUp()
		}
		batch, wait, over := q.next()
		switch {
		case over:
			return
		case len(batch) > 0:
			s.running.Go(func() {
				q.send(batch)
				s.mu.Lock()
				defer s.mu.Unlock()
				q.inFlight--
				q.signal()
			})
			continue
		}
		timer.Reset(min(wait, lookEvery))
		select {
		case <-q.wake:
		case <-timer.C:
		}
	}
}

// giveUp completes the records that must not be sent any more.
func (q *queue) giveUp() {
	s := q.sink
	outage := s.holds()
	if s.sending.Err() != nil {
		outage = driver.Outage(&Error{Endpoint: s.endpoint, Err: ErrClosed})
	}
	var gone []*record
	s.mu.Lock()
	q.waiting = slices.DeleteFunc(q.waiting, func(r *record) bool {
		if outage == nil && r.ctx.Err() == nil {
			return false
		}
		gone = append(gone, r)
		q.bytes -= r.size
		return true
	})
	s.mu.Unlock()
	for _, r := range gone {
		s.finish(r, cmp.Or(r.ctx.Err(), outage))
	}
}

// next returns the batch that is due, or how long to wait. If the queue is not needed any more,
// it leaves the sink.
func (q *queue) next() (batch []*record, wait time.Duration, over bool) {
	s := q.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(q.waiting) == 0 && q.inFlight == 0:
		delete(s.queues, q.origin)
		return nil, 0, true
	case len(q.waiting) == 0 || q.inFlight >= s.cfg.Concurrency:
		return nil, lookEvery, false // a request that ends signals
	case !q.full() && !s.closed:
		if wait = s.cfg.FlushAfter - time.Since(q.waiting[0].queued); wait > 0 {
			return nil, wait, false
		}
	}
	q.inFlight++
	return q.take(), 0, false
}

// take removes the records of the next batch. A record whose requests have failed is in a batch
// of at most its limit. The caller holds the sink's mu.
func (q *queue) take() []*record {
	most, bytes := int(q.sink.most.Load()), 0
	n := 0
	for _, r := range q.waiting {
		if limit := r.message.limit; limit > 0 {
			most = min(most, limit)
		}
		if bytes += r.size; n > 0 && (n >= most || bytes > q.sink.cfg.MaxBytes) {
			bytes -= r.size
			break
		}
		n++
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.bytes -= bytes
	slices.SortStableFunc(batch, func(a, b *record) int { return cmp.Compare(a.message.Event.Sequence, b.message.Event.Sequence) })
	return batch
}
