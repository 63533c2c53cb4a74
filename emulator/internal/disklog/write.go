package disklog

import "sync"

const (
	writeBuffer  = 1 << 20   // bytes of one call of WriteAt
	minAllocated = 256 << 10 // space that is allocated ahead…
	maxAllocated = 4 << 20   // …growing with the segment
	tailBytes    = 4 << 10
)

var writeBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, writeBuffer)
	return &b
}}

// write makes the batches durable at the end of the log and visible to readers, or
// leaves the log as it was. The caller holds writeLock.
func (l *Log) write(group []*appendRequest) error {
	if l.isClosed() {
		return ErrClosed
	}
	if l.unusable != nil {
		return l.unusable
	}
	if l.end-l.active().position >= l.config.SegmentBytes {
		if err := l.roll(); err != nil {
			return err
		}
	}
	s := l.active()
	size := int64(0)
	for _, r := range group {
		size += r.size
	}
	l.allocate(s, size)

	w := l.startWriter(s)
	defer w.free()
	for _, r := range group {
		if err := w.appendBatch(r.msgs); err != nil {
			return l.rollBack("write", err)
		}
	}
	if err := w.flush(); err != nil {
		return l.rollBack("write", err)
	}
	if err := s.file.sync(); err != nil {
		return l.rollBack("sync", err)
	}
	l.tail, w.tail = w.tail, l.tail
	s.mu.Lock()
	s.index = append(s.index, w.index...)
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.end, l.last = w.next, w.end, w.last
	l.wake()
	return nil
}

// writer writes batches after the end of the log, where readers don't see them yet.
type writer struct {
	segment  *segment
	begin    int64 // position at which the write began
	position int64 // position to which buf goes
	buf      []byte
	pooled   *[]byte

	// The state of the log once all is durable.
	next        int64
	end         int64
	last        lastEvent
	tail        []byte
	index       []indexEntry
	lastIndexed int64 // position of the last event in the index
}

// startWriter resets the log's writer to the end of the log. Writes reuse only its
// buffers.
func (l *Log) startWriter(s *segment) *writer {
	w := &l.writer
	*w = writer{
		segment: s, begin: l.end, position: l.end, pooled: writeBuffers.Get().(*[]byte),
		next: l.next, end: l.end, last: l.last,
		tail: append(w.tail[:0], l.tail...), index: w.index[:0],
	}
	w.buf = (*w.pooled)[:0]
	w.last.enqueued = max(w.last.enqueued, l.config.Now().UnixMilli())
	s.mu.Lock()
	defer s.mu.Unlock()
	w.lastIndexed = s.lastIndexed()
	return w
}

func (w *writer) free() {
	writeBuffers.Put(w.pooled)
	w.pooled, w.buf = nil, nil
}

func (w *writer) appendBatch(msgs []Message) error {
	for i := range msgs {
		size := recordSize(&msgs[i])
		if len(w.buf) > 0 && int64(len(w.buf))+size > writeBuffer {
			if err := w.flush(); err != nil {
				return err
			}
		}
		f := record{left: len(msgs) - 1 - i, sequence: w.next, enqueued: w.last.enqueued, written: w.end - w.begin}
		w.buf = appendRecord(w.buf, w.segment.mark, w.end, f, &msgs[i])
		if w.end-w.lastIndexed >= indexStep {
			w.index = append(w.index, w.segment.newEntry(w.end, w.next, f.enqueued))
			w.lastIndexed = w.end
		}
		w.last.position = w.end
		w.end += size
		w.next++
	}
	return nil
}

func (w *writer) flush() error {
	if _, err := w.segment.file.WriteAt(w.buf, w.segment.fileAt(w.position)); err != nil {
		return err
	}
	w.position += int64(len(w.buf))
	w.tail = append(w.tail, w.buf[max(0, len(w.buf)-tailBytes):]...)
	w.tail = w.tail[:copy(w.tail, w.tail[max(0, len(w.tail)-tailBytes):])]
	w.buf = (*w.pooled)[:0] // a buffer that grew for a large event is dropped
	return nil
}

// allocate allocates space for size bytes at the end of the log and for later
// writes: an fsync that doesn't have to grow the file is faster.
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

// rollBack truncates the last segment to what is durable after a failed write or
// fsync, and returns the appenders' error. The caller holds writeLock.
func (l *Log) rollBack(doing string, cause error) error {
	l.allocated = l.active().fileAt(l.end)
	err := l.truncateToDurable(doing == "sync")
	if err != nil {
		err = l.truncateToDurable(true)
	}
	if err != nil {
		return l.refuseAppends(doing, cause)
	}
	return &WriteError{Dir: l.store.path(), Doing: doing, Err: cause}
}

// truncateToDurable makes the file durable as it was before the write. A failed
// fsync may have damaged the block that the durable bytes end in, although its page
// is marked clean: with rewriteTail those bytes are written again, from memory.
func (l *Log) truncateToDurable(rewriteTail bool) error {
	f, size := l.active().file, l.allocated
	if err := f.truncate(size); err != nil {
		return err
	}
	if rewriteTail {
		if _, err := f.WriteAt(l.tail, size-int64(len(l.tail))); err != nil {
			return err
		}
	}
	return f.sync()
}

// refuseAppends makes the log refuse appends from now on. The caller holds writeLock.
func (l *Log) refuseAppends(doing string, cause error) error {
	l.unusable = &WriteError{Dir: l.store.path(), Doing: doing, Err: cause, Unusable: true}
	return l.unusable
}

// roll seals the last segment and begins a new one. If that fails, the log is
// unchanged. The caller holds writeLock.
func (l *Log) roll() error {
	sealed := l.active()
	// Frees the space allocated ahead. Without an fsync: a sealed file may be longer
	// than necessary.
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
		// If the new segment reappeared after a crash, it would hide what was
		// appended to the old one in the meantime.
		if s != nil {
			_ = s.close()
		}
		if l.removeSegment(segmentName(l.next)) != nil {
			return l.refuseAppends("create segment", err)
		}
		return &WriteError{Dir: l.store.path(), Doing: "create segment", Err: err}
	}
	l.allocated, l.tail = segmentHeader, append(l.tail[:0], s.header()...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, s)
	l.markOpen(sealed)
	return nil
}

// removeSegment durably removes the file of a segment whose creation failed.
func (l *Log) removeSegment(name string) error {
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
