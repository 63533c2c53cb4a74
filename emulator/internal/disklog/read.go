package disklog

import (
	"sort"
	"strconv"
	"time"
)

const (
	readBuffer    = 256 << 10
	minReadBuffer = 4 << 10
)

func formatOffset(position int64) string { return strconv.FormatInt(position, 10) }

// Read appends to dst the durable events from sequence number next on, or from the
// oldest one if next has been trimmed. It stops after maxEvents events,
// or before their keys and payloads exceed maxBytes, but returns at least one
// event if there is one and maxEvents is positive. It never waits for more.
//
// The caller owns the events; those of one call share memory. A [*CorruptError] is
// returned only if there are no intact events before the damage.
func (l *Log) Read(next int64, maxEvents, maxBytes int, dst []Stored) ([]Stored, error) {
	return l.read(next, limits{events: maxEvents, bytes: maxBytes, any: true}, dst, nil)
}

// Batch is the result of a [Log.ReadInto], whose memory the next one reuses.
type Batch struct {
	Events []Stored // the payloads are valid until the next read
	blocks blocks
}

// ReadInto is [Log.Read] for callers that don't use the events after the next read.
// It allocates no memory for the payloads.
func (l *Log) ReadInto(b *Batch, next int64, maxEvents, maxBytes int) (err error) {
	b.blocks.used = 0
	b.Events, err = l.read(next, limits{events: maxEvents, bytes: maxBytes, any: true}, b.Events[:0], &b.blocks)
	return err
}

func (l *Log) read(next int64, limit limits, dst []Stored, memory *blocks) ([]Stored, error) {
	had := len(dst)
	for limit.events > 0 {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return dst, ErrClosed
		}
		next = max(next, l.first)
		if next >= l.next {
			l.mu.Unlock()
			break
		}
		i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].sequence > next }) - 1
		s, end := l.acquire(i)
		events := l.next - s.sequence
		if i+1 < len(l.segments) {
			events = l.segments[i+1].sequence - s.sequence
		}
		l.mu.Unlock()

		limit.average = (end - s.position) / max(events, 1)
		more, full, err := l.readSegment(s, end, next, &limit, dst, memory)
		l.release(s)
		if err != nil && len(more) == had {
			return dst, err
		}
		dst = more
		if err != nil || full {
			break
		}
		next = dst[len(dst)-1].Sequence + 1
	}
	return dst, nil
}

// limits is what a read may still return.
type limits struct {
	events, bytes int
	any           bool  // nothing was returned yet: the first event may have any size
	average       int64 // average record size in the segment, for an estimate
}

func (l *limits) admit(size int) bool {
	if l.events <= 0 || size > l.bytes && !l.any {
		return false
	}
	l.events, l.bytes, l.any = l.events-1, l.bytes-size, false
	return true
}

// readSegment appends to dst the events of an acquired segment from next on, up to
// the limit, and reports whether the limit was reached.
func (l *Log) readSegment(s *segment, end, next int64, limit *limits, dst []Stored, memory *blocks) (_ []Stored, full bool, err error) {
	c, err := l.newCursor(s, end, func(_, sequence, _ int64) bool { return sequence > next })
	if err != nil {
		return dst, false, err
	}
	defer c.close()
	c.chunk = c.estimate(next, limit)
	for c.sequence < next {
		if _, _, err := c.next(); err != nil {
			return dst, false, err
		}
	}
	begin := len(dst)
	for c.position < end {
		// Events point into the cursor's buffer, which the next fill overwrites.
		if !c.buffered() {
			c.copyOut(dst[begin:], memory)
			begin = len(dst)
		}
		at := c.position
		f, b, err := c.next()
		if err != nil || !limit.admit(f.size-recordHeader) {
			c.copyOut(dst[begin:], memory)
			return dst, err == nil, err
		}
		dst = append(dst, Stored{Sequence: f.sequence, Enqueued: time.UnixMilli(f.enqueued).UTC(), Payload: b[recordHeader+f.key:]})
		c.scratch.keep(at, b[recordHeader:recordHeader+f.key])
	}
	c.copyOut(dst[begin:], memory)
	return dst, limit.events == 0, nil
}

// SeekOffset returns the sequence number of the first event at or after the offset,
// or that of the next event to be appended.
func (l *Log) SeekOffset(offset int64) (next int64, err error) {
	return l.seek(
		func(s *segment) bool { return s.position > offset },
		func(position, _, _ int64) bool { return position >= offset })
}

// SeekTime returns the sequence number of the first event that was enqueued at
// ms milliseconds since 1970 or later, or that of the next event to be appended.
func (l *Log) SeekTime(ms int64) (next int64, err error) {
	return l.seek(
		func(s *segment) bool { return s.previous.position >= 0 && s.previous.enqueued >= ms },
		func(_, _, enqueued int64) bool { return enqueued >= ms })
}

// seek returns the sequence number of the first event for which reached is true, or
// that of the next event. behind reports whether such an event is in an earlier
// segment.
func (l *Log) seek(behind func(*segment) bool, reached func(position, sequence, enqueued int64) bool) (int64, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, ErrClosed
	}
	first := l.first
	i := sort.Search(len(l.segments), func(i int) bool { return behind(l.segments[i]) })
	s, end := l.acquire(max(i-1, 0))
	l.mu.Unlock()
	defer l.release(s)

	c, err := l.newCursor(s, end, reached)
	if err != nil {
		return 0, err
	}
	defer c.close()
	for c.position < end {
		at := c.position
		f, _, err := c.next()
		if err != nil {
			return 0, err
		}
		if reached(at, f.sequence, f.enqueued) {
			return max(f.sequence, first), nil
		}
	}
	return max(c.sequence, first), nil
}

// blocks is memory for payloads that successive reads reuse.
type blocks struct {
	all  [][]byte
	used int
}

// take returns an empty slice of at least the given capacity: a new one if b is nil.
func (b *blocks) take(size int) []byte {
	if b == nil {
		return make([]byte, 0, size)
	}
	if b.used == len(b.all) {
		b.all = append(b.all, nil)
	}
	if cap(b.all[b.used]) < size {
		b.all[b.used] = make([]byte, 0, size)
	}
	b.used++
	return b.all[b.used-1]
}
