package cosmos

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/limiter"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// queue holds the records for one physical partition. Its goroutine, pump, sends
// them in batches, several at a time as long as the account keeps up.
type queue struct {
	sink *Sink
	id   string // of the partition key range
	span partitionkey.Range

	budget *limiter.Budget // nil: no limit
	wake   chan struct{}   // signals the pump

	mu        sync.Mutex
	waiting   fifo
	closed    bool          // the range no longer exists, and nothing can be queued
	inFlight  int           // requests
	window    float64       // the most requests in flight
	lastCut   time.Duration // when the window was last halved, by the sink's clock
	holdUntil time.Duration // no request before, as the account asked, by the sink's clock
	average   float64       // cost of an operation, in RU
	full      int           // the most records in a batch
}

// initialCost is the assumed cost of an operation in RU before the first charge is
// known: an upsert of a document of 1 KB in a container with the default indexes.
const initialCost = 10

func newQueue(s *Sink, id string, span partitionkey.Range) *queue {
	return &queue{sink: s, id: id, span: span, wake: make(chan struct{}, 1), window: 1, average: initialCost, full: s.cfg.MaxOperations}
}

// push queues a record. It returns false if the queue is closed.
func (q *queue) push(r *record) bool {
	r.queued = q.sink.clock.Elapsed()
	r.bytes = r.size()
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.waiting.push(r)
	// The pump sleeps until the first record is due, or one more fills a batch.
	n := q.waiting.len()
	notify := n == 1 || n == q.full || q.waiting.bytes >= q.sink.cfg.MaxBytes && q.waiting.bytes-r.bytes < q.sink.cfg.MaxBytes
	q.mu.Unlock()
	if notify {
		q.signal()
	}
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close closes the queue and returns the queued records.
func (q *queue) close() []*record {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
	return q.waiting.take(q.waiting.len(), 1<<62)
}

// pump sends batches until the queue is closed and empty, or ctx ends. It returns
// when its requests have.
func (q *queue) pump(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		n, wait, over := q.due()
		switch {
		case over:
			return
		case n == 0:
			timer.Reset(wait)
			select {
			case <-q.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			continue
		}
		var reserved float64
		var waited time.Duration
		if q.budget != nil {
			n, reserved = q.estimate(n)
			began := q.sink.clock.Elapsed()
			if q.budget.Reserve(ctx, reserved) != nil {
				return
			}
			waited = q.sink.clock.Elapsed() - began
		}
		q.mu.Lock()
		batch := q.waiting.take(n, q.sink.cfg.MaxBytes)
		if len(batch) > 0 { // the queue may have been closed in the meantime
			batch[0].waited += waited
		}
		q.inFlight++
		q.mu.Unlock()
		requests.Go(func() { q.sendBatch(ctx, batch, reserved) })
	}
}

// due returns how many records are to be sent now, and if none, how long to wait.
func (q *queue) due() (n int, wait time.Duration, over bool) {
	cfg, now := &q.sink.cfg, q.sink.clock.Elapsed()
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(q.waiting.len(), cfg.MaxOperations)
	switch {
	case n == 0:
		return 0, time.Hour, q.closed
	case q.inFlight >= max(1, int(q.window)):
		return 0, time.Hour, false // a completed request signals the pump
	case now < q.holdUntil:
		return 0, q.holdUntil - now, false
	case n >= q.full || q.waiting.bytes >= cfg.MaxBytes || q.sink.closed.Load():
		return n, 0, false
	}
	patience := cfg.FlushAfter
	if q.inFlight == 0 {
		patience = cfg.idleFlushAfter()
	}
	if wait = q.waiting.first().queued + patience - now; wait > 0 {
		return 0, wait, false
	}
	return n, 0, false
}

// estimate returns the estimated cost of n operations, or of fewer if n would cost
// more than the budget's portion.
func (q *queue) estimate(n int) (int, float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = max(1, min(q.sink.cfg.MaxOperations, int(q.budget.Portion()/q.average)))
	n = min(n, q.full)
	return n, float64(n) * q.average
}

// batchStats is what the queue learns from a request.
type batchStats struct {
	operations int
	throttled  bool
	retryAfter time.Duration // how long the account asks to wait
	cost       float64
}

func (f *batchStats) throttle(after time.Duration) {
	f.throttled, f.retryAfter = true, max(f.retryAfter, after)
}

// add adds what the queue has learnt from another request.
func (f *batchStats) add(g batchStats) {
	f.operations += g.operations
	f.cost += g.cost
	if g.throttled {
		f.throttle(g.retryAfter)
	}
}

// sendBatch sends a batch, and adapts the queue to the response.
func (q *queue) sendBatch(ctx context.Context, batch []*record, reserved float64) {
	began := q.sink.clock.Elapsed()
	f := q.send(ctx, batch)
	if q.budget != nil {
		q.budget.Settle(reserved, f.cost)
		if f.throttled {
			q.budget.Hold(f.retryAfter)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.inFlight >= int(q.window)
	q.inFlight--
	now := q.sink.clock.Elapsed()
	switch {
	case f.throttled:
		q.holdUntil = max(q.holdUntil, now+f.retryAfter)
		if began >= q.lastCut { // requests sent before the cut give no new information
			q.window, q.lastCut = max(1, q.window/2), now
		}
	case f.operations > 0 && full:
		q.window = min(float64(q.sink.cfg.Concurrency), q.window+1/q.window)
	}
	if f.operations > 0 && f.cost > 0 && !f.throttled {
		q.average += (f.cost/float64(f.operations) - q.average) / 8
	}
	q.signal()
}

// fifo is a queue of records, with the sum of their bytes.
type fifo struct {
	list  []*record
	head  int
	bytes int
}

func (f *fifo) len() int       { return len(f.list) - f.head }
func (f *fifo) first() *record { return f.list[f.head] }

func (f *fifo) push(r *record) {
	if f.head > 1024 && f.head > len(f.list)/2 {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, r)
	f.bytes += r.bytes
}

// take removes up to n records of up to so many bytes, but at least one.
func (f *fifo) take(n, bytes int) []*record {
	n = min(n, f.len())
	batch := make([]*record, 0, n)
	for _, r := range f.list[f.head : f.head+n] {
		if bytes -= r.bytes; bytes < 0 && len(batch) > 0 {
			break
		}
		batch = append(batch, r)
		f.bytes -= r.bytes
	}
	clear(f.list[f.head : f.head+len(batch)])
	if f.head += len(batch); f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
	return batch
}

// drop removes the records for which fn returns true, and returns them.
func (f *fifo) drop(fn func(*record) bool) (out []*record) {
	kept := f.list[:f.head]
	for _, r := range f.list[f.head:] {
		if fn(r) {
			out = append(out, r)
			f.bytes -= r.bytes
		} else {
			kept = append(kept, r)
		}
	}
	clear(f.list[len(kept):])
	if f.list = kept; f.head == len(kept) {
		f.list, f.head = f.list[:0], 0
	}
	return out
}
