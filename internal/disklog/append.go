package disklog

import (
	"context"
	"fmt"
	"sync"
)

const (
	maxWrite     = 8 << 20   // bytes of the batches that share one sync, unless a single one is larger
	writeBuffer  = 1 << 20   // bytes that are handed to the file at once
	minAllocated = 256 << 10 // space that is allocated ahead…
	maxAllocated = 16 << 20  // …growing with the segment
	tailBytes    = 4 << 10
)

// request is a batch that waits to be written.
type request struct {
	msgs  []Message
	size  int64 // with frames
	first int64
	err   error
	done  chan struct{} // closed when first and err are set
}

func (r *request) finish(first int64, err error) {
	r.first, r.err = first, err
	close(r.done)
}

// Append adds a batch behind the newest event, all of it or nothing, and
// returns the sequence number of its first event. The batch is durable when
// Append returns. The log retains nothing of msgs.
//
// Batches that arrive while another write is in progress are written together,
// in the order of their arrival. If ctx ends before its own write has begun,
// nothing is appended; after that Append waits for the outcome.
//
// Errors: [ErrTooLarge], [ErrClosed], ctx's, or a [*WriteError].
func (l *Log) Append(ctx context.Context, msgs []Message) (first int64, err error) {
	r := &request{msgs: msgs, done: make(chan struct{})}
	for i := range msgs {
		if len(msgs[i].Key) > maxKey {
			return 0, fmt.Errorf("event %d of the batch: key of %d bytes: %w, which takes %d", i, len(msgs[i].Key), ErrTooLarge, maxKey)
		}
		r.size += frameSize(&msgs[i])
	}
	if r.size > l.config.MaxBatchBytes {
		return 0, fmt.Errorf("batch of %d bytes: %w, which takes %d", r.size, ErrTooLarge, l.config.MaxBatchBytes)
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

	// Whoever gets the turn writes for all that are waiting.
	for {
		select {
		case <-r.done:
			return r.first, r.err
		case l.turn <- struct{}{}:
			l.commit()
			<-l.turn
		case <-ctx.Done():
			if l.withdraw(r) {
				return 0, ctx.Err()
			}
			<-r.done
			return r.first, r.err
		}
	}
}

// withdraw takes r out of the queue, unless its write has begun.
func (l *Log) withdraw(r *request) bool {
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

// take removes from the head of the queue as many requests as go into one
// write. The caller holds the turn.
func (l *Log) take() []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for size := int64(0); n < len(l.queue); n++ {
		if size += l.queue[n].size; size > maxWrite && n > 0 {
			break
		}
	}
	group := append([]*request(nil), l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return group
}

// commit writes the waiting batches, syncs, shows them to the readers and tells
// the appenders. The caller holds the turn.
func (l *Log) commit() {
	group := l.take()
	if len(group) == 0 {
		return
	}
	written, err := l.write(group)
	if err != nil {
		for _, r := range group {
			r.finish(0, err)
		}
		return
	}
	first := l.next
	l.mu.Lock()
	l.next, l.end, l.last = written.next, written.end, written.last
	l.wake()
	l.mu.Unlock()
	for _, r := range group {
		r.finish(first, nil)
		first += int64(len(r.msgs))
	}
}

// written is where the log ends after a write.
type written struct {
	next, end int64
	last      newest
}

var writeBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, writeBuffer)
	return &b
}}

// write makes the batches durable behind the end of the log, or leaves the log
// as it was. The caller holds the turn.
func (l *Log) write(group []*request) (written, error) {
	if l.isClosed() {
		return written{}, ErrClosed
	}
	if l.unusable != nil {
		return written{}, l.unusable
	}
	if l.end-l.active().position >= l.config.SegmentBytes {
		if err := l.roll(); err != nil {
			return written{}, err
		}
	}
	s := l.active()
	var size int64
	for _, r := range group {
		size += r.size
	}
	l.allocate(s, size)
	l.pending, l.fresh = append(l.pending[:0], l.tail...), l.fresh[:0]

	pooled := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(pooled)
	buf, at := (*pooled)[:0], l.end // buf goes to position at
	flush := func() error {
		if _, err := s.file.WriteAt(buf, s.fileAt(at)); err != nil {
			return l.retreat("write", err)
		}
		l.pending = append(l.pending, buf[max(0, len(buf)-tailBytes):]...)
		l.pending = l.pending[:copy(l.pending, l.pending[max(0, len(l.pending)-tailBytes):])]
		at += int64(len(buf))
		if cap(buf) <= 2*writeBuffer {
			*pooled = buf
		}
		buf = (*pooled)[:0]
		return nil
	}
	to := written{l.next, l.end, l.last}
	to.last.enqueued = max(to.last.enqueued, l.config.Now().UnixMilli())
	s.mu.Lock()
	indexed := s.indexed()
	s.mu.Unlock()
	for _, r := range group {
		for i := range r.msgs {
			f := frame{left: len(r.msgs) - 1 - i, sequence: to.next, enqueued: to.last.enqueued, written: to.end - l.end}
			if len(buf) > 0 && int64(len(buf))+frameSize(&r.msgs[i]) > writeBuffer {
				if err := flush(); err != nil {
					return written{}, err
				}
			}
			buf = appendFrame(buf, s.mark, to.end, f, &r.msgs[i])
			if to.end-indexed >= indexStep {
				l.fresh = append(l.fresh, s.entry(to.end, to.next, f.enqueued))
				indexed = to.end
			}
			to.last.position = to.end
			to.end += frameSize(&r.msgs[i])
			to.next++
		}
	}
	if err := flush(); err != nil {
		return written{}, err
	}
	if err := s.file.sync(); err != nil {
		return written{}, l.retreat("sync", err)
	}
	l.tail, l.pending = l.pending, l.tail
	s.mu.Lock()
	s.index = append(s.index, l.fresh...)
	s.mu.Unlock()
	return to, nil
}

// allocate reserves space for size bytes at the end of the log and some more:
// syncs that don't have to grow the file are faster.
func (l *Log) allocate(s *segment, size int64) {
	need := s.fileAt(l.end) + size
	if need <= l.allocated {
		return
	}
	ahead := need + min(max(need, minAllocated), maxAllocated)
	ahead = max(need, min(ahead, segmentHeader+l.config.SegmentBytes))
	s.file.allocate(l.allocated, ahead)
	l.allocated = ahead
}

// retreat cuts the last segment back to what is durable after a failed write or
// sync, and returns the appenders' error. The caller holds the turn.
func (l *Log) retreat(doing string, cause error) error {
	l.allocated = l.active().fileAt(l.end)
	err := l.cutBack(doing == "sync")
	if err != nil {
		err = l.cutBack(true)
	}
	if err != nil {
		return l.giveUp(doing, cause)
	}
	return &WriteError{Dir: l.store.path(), Doing: doing, Err: cause}
}

// cutBack makes the file durable as it was before the write. A failed sync may
// have spoiled the block that the durable bytes end in, and its page may pass
// for clean: mend writes those bytes again, from a copy that is certain.
func (l *Log) cutBack(mend bool) error {
	f, size := l.active().file, l.allocated
	if err := f.truncate(size); err != nil {
		return err
	}
	if mend {
		if _, err := f.WriteAt(l.tail, size-int64(len(l.tail))); err != nil {
			return err
		}
	}
	return f.sync()
}

// giveUp makes the log refuse appends from now on. The caller holds the turn.
func (l *Log) giveUp(doing string, cause error) error {
	l.unusable = &WriteError{Dir: l.store.path(), Doing: doing, Err: cause, Unusable: true}
	return l.unusable
}

// roll seals the last segment and begins a new one. If that fails, the log
// stays as it is. The caller holds the turn.
func (l *Log) roll() error {
	sealed := l.active()
	// Gives back what was allocated ahead. No sync: more than is needed does no
	// harm in a sealed file.
	size := sealed.fileAt(l.end)
	if err := sealed.file.truncate(size); err != nil {
		return &WriteError{Dir: l.store.path(), Doing: "seal segment", Err: err}
	}
	l.allocated = size
	s, err := createSegment(l.store, l.next, l.end, l.last)
	if err == nil {
		err = l.store.syncDir()
	}
	if err != nil {
		// A new segment that came back after a crash, while appends went on in
		// the old one, would hide them.
		if s != nil {
			_ = s.close()
		}
		if l.discard(segmentName(l.next)) != nil {
			return l.giveUp("create segment", err)
		}
		return &WriteError{Dir: l.store.path(), Doing: "create segment", Err: err}
	}
	l.allocated, l.tail = segmentHeader, append(l.tail[:0], s.header()...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, s)
	l.warmUp(sealed)
	return nil
}

// discard removes a segment that never was one, for certain.
func (l *Log) discard(name string) error {
	names, err := l.store.list()
	if err != nil {
		return err
	}
	for _, n := range names {
		if n == name {
			if err := l.store.remove(name); err != nil {
				return err
			}
		}
	}
	return l.store.syncDir()
}
