package disklog

import (
	"context"
	"fmt"
)

// maxWrite is the most bytes of batches that share one fsync, unless a single batch
// is larger.
const maxWrite = 8 << 20

// appendRequest is a batch that waits to be written.
type appendRequest struct {
	msgs  []Message
	size  int64 // of the batch's records
	first int64
	err   error
	done  chan struct{} // closed when first and err are set
}

func (r *appendRequest) finish(first int64, err error) {
	r.first, r.err = first, err
	close(r.done)
}

// Append appends a batch, all of it or nothing, and returns the sequence number of
// its first event. The batch is durable when Append returns. The log does not
// retain msgs.
//
// Batches that are appended while another write is in progress are written
// together, in the order of the calls. If ctx ends before its own write has begun,
// nothing is appended; after that Append waits for the outcome.
//
// Errors: [ErrTooLarge], [ErrClosed], ctx's, or a [*WriteError].
func (l *Log) Append(ctx context.Context, msgs []Message) (first int64, err error) {
	r, err := l.newRequest(msgs)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, ErrClosed
	}
	if len(msgs) == 0 {
		defer l.mu.Unlock()
		return l.next, nil
	}
	l.queue = append(l.queue, r)
	l.mu.Unlock()

	// The appender that gets the lock writes for all that wait.
	for {
		select {
		case <-r.done:
			return r.first, r.err
		case l.writeLock <- struct{}{}:
			l.commit()
			<-l.writeLock
		case <-ctx.Done():
			if l.withdraw(r) {
				return 0, ctx.Err()
			}
			<-r.done
			return r.first, r.err
		}
	}
}

// newRequest checks the size of a batch.
func (l *Log) newRequest(msgs []Message) (*appendRequest, error) {
	r := &appendRequest{msgs: msgs, done: make(chan struct{})}
	for i := range msgs {
		if len(msgs[i].Key) > maxKey {
			return nil, fmt.Errorf("event %d of the batch: key of %d bytes: %w, the limit is %d", i, len(msgs[i].Key), ErrTooLarge, maxKey)
		}
		r.size += recordSize(&msgs[i])
	}
	if r.size > l.config.MaxBatchBytes {
		return nil, fmt.Errorf("batch of %d bytes: %w, the limit is %d", r.size, ErrTooLarge, l.config.MaxBatchBytes)
	}
	return r, nil
}

// withdraw removes r from the queue. It reports false if its write has begun.
func (l *Log) withdraw(r *appendRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.queue {
		if q == r {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return true
		}
	}
	return false
}

// takeGroup removes the requests of one write from the head of the queue. The
// caller holds writeLock.
func (l *Log) takeGroup() []*appendRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for size := int64(0); n < len(l.queue); n++ {
		if size += l.queue[n].size; size > maxWrite && n > 0 {
			break
		}
	}
	group := append([]*appendRequest(nil), l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return group
}

// commit writes the queued batches and finishes their requests. The caller holds
// writeLock.
func (l *Log) commit() {
	group := l.takeGroup()
	if len(group) == 0 {
		return
	}
	first := l.next
	if err := l.write(group); err != nil {
		for _, r := range group {
			r.finish(0, err)
		}
		return
	}
	for _, r := range group {
		r.finish(first, nil)
		first += int64(len(r.msgs))
	}
}
