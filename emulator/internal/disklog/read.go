package disklog

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"sync"
	"time"
)

const (
	readBuffer    = 256 << 10
	minReadBuffer = 4 << 10
)

func formatOffset(position int64) string { return strconv.FormatInt(position, 10) }

// Read appends to dst the durable events from sequence number next on, or from
// the oldest that is left if next is below it. It stops after maxEvents events,
// or before their keys and payloads exceed maxBytes, but returns at least one
// event if there is one and maxEvents is positive. It never waits for more.
//
// The events are the caller's; neighbours share their memory. A
// [*CorruptError] is reported when there is nothing intact to return before it.
func (l *Log) Read(next int64, maxEvents, maxBytes int, dst []Stored) ([]Stored, error) {
	return l.read(next, limits{events: maxEvents, bytes: maxBytes, any: true}, dst, nil)
}

// Batch is the result of a read whose memory the next one uses again.
type Batch struct {
	Events []Stored // their payloads are good until the next read
	blocks blocks
}

// ReadInto is [Log.Read] for callers that are done with the events before they
// read again. It spares the garbage collector the payloads.
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
	any           bool  // nothing was returned yet, so that one event of any size may be
	average       int64 // size of the segment's frames, for an estimate
}

func (l *limits) admit(size int) bool {
	if l.events <= 0 || size > l.bytes && !l.any {
		return false
	}
	l.events, l.bytes, l.any = l.events-1, l.bytes-size, false
	return true
}

// readSegment appends to dst the events of a held segment from next on, up to
// the limit, and reports whether that was reached.
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
		// Events point into the cursor's buffer until that moves on.
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

// SeekOffset returns the sequence number of the first event at the offset or
// behind it, which may be that of the next event.
func (l *Log) SeekOffset(offset int64) (next int64, err error) {
	return l.seek(
		func(s *segment) bool { return s.position > offset },
		func(position, _, _ int64) bool { return position >= offset })
}

// SeekTime returns the sequence number of the first event that was enqueued at
// ms milliseconds since 1970 or later, which may be that of the next event.
func (l *Log) SeekTime(ms int64) (next int64, err error) {
	return l.seek(
		func(s *segment) bool { return s.previous.position >= 0 && s.previous.enqueued >= ms },
		func(_, _, enqueued int64) bool { return enqueued >= ms })
}

// seek returns the sequence number of the first event left that is reached;
// behind says that an earlier segment has reached too.
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

// scratch is the memory of a cursor, used again and again.
type scratch struct {
	buf  []byte
	text []byte // keys and offsets of the events that are not settled
	ends []int  // where each of them ends in text
}

func (s *scratch) keep(position int64, key []byte) {
	s.text = append(s.text, key...)
	s.ends = append(s.ends, len(s.text))
	s.text = strconv.AppendInt(s.text, position, 10)
	s.ends = append(s.ends, len(s.text))
}

var scratches = sync.Pool{New: func() any { return &scratch{buf: make([]byte, readBuffer)} }}

// cursor walks over the frames of a segment and checks them.
type cursor struct {
	segment     *segment
	file        file
	dir         string
	position    int64 // of the next frame
	sequence    int64 // of its event
	lastIndexed int64 // position of the last event seen that is in the index
	end         int64
	chunk       int // bytes to read at once
	scratch     *scratch
	buf         []byte // what was read, from position on
}

// newCursor begins at the last event in the index of a held segment for which beyond
// is false, or at the segment's first. beyond is false for the events up to
// some place, and true from there on.
func (l *Log) newCursor(s *segment, end int64, beyond func(position, sequence, enqueued int64) bool) (*cursor, error) {
	f, err := s.open(l.store)
	if err != nil {
		return nil, err
	}
	c := &cursor{segment: s, file: f, dir: l.store.path(), end: end, chunk: readBuffer, scratch: scratches.Get().(*scratch)}
	c.position, c.sequence = s.lookup(beyond)
	c.lastIndexed = c.position
	return c, nil
}

func (c *cursor) close() {
	if len(c.scratch.buf) == readBuffer {
		scratches.Put(c.scratch)
	}
}

// buffered reports whether the next frame is in the buffer as a whole.
func (c *cursor) buffered() bool {
	f, ok := parseRecord(c.buf, c.segment.mark)
	return ok && f.size <= len(c.buf)
}

// next returns the frame at the cursor and moves on. The bytes are good until
// the next call for which buffered is false. The cursor stays where it is with
// a [*CorruptError].
func (c *cursor) next() (record, []byte, error) {
	if len(c.buf) < recordHeader {
		if err := c.fill(recordHeader); err != nil {
			return record{}, nil, err
		}
	}
	f, ok := parseRecord(c.buf, c.segment.mark)
	if !ok {
		return record{}, nil, c.corrupt("no event here")
	}
	if len(c.buf) < f.size {
		if err := c.fill(f.size); err != nil {
			return record{}, nil, err
		}
	}
	b := c.buf[:f.size:f.size]
	switch {
	case !checksumValid(b, c.position):
		return record{}, nil, c.corrupt("wrong checksum")
	case f.sequence != c.sequence:
		return record{}, nil, c.corrupt(fmt.Sprintf("event %d in the place of %d", f.sequence, c.sequence))
	}
	if c.position-c.lastIndexed >= indexStep {
		c.segment.addToIndex(c.position, f.sequence, f.enqueued)
		c.lastIndexed = c.position
	}
	c.buf = c.buf[f.size:]
	c.position += int64(f.size)
	c.sequence++
	return f, b, nil
}

// estimate returns how much to read at once to skip to the event next and then
// have what is asked for, without much beyond.
func (c *cursor) estimate(next int64, limit *limits) int {
	wanted := min(min(int64(limit.events), readBuffer)*limit.average, min(int64(limit.bytes), readBuffer))
	wanted += wanted/8 + minReadBuffer
	if c.sequence < next {
		wanted += indexStep
	}
	return int(min(wanted, readBuffer))
}

// fill reads at least n bytes from the cursor's position on.
func (c *cursor) fill(n int) error {
	if int64(n) > c.end-c.position {
		return c.corrupt("cut off")
	}
	n = int(min(int64(max(n, c.chunk)), c.end-c.position))
	if n > len(c.scratch.buf) {
		c.scratch.buf = make([]byte, n)
	}
	got, err := c.file.ReadAt(c.scratch.buf[:n], c.segment.fileAt(c.position))
	if got < n {
		if errors.Is(err, io.EOF) {
			return c.corrupt("cut off")
		}
		return err
	}
	c.buf = c.scratch.buf[:n]
	return nil
}

// blocks is memory to use again.
type blocks struct {
	all  [][]byte
	used int
}

// take returns an empty slice of at least the given capacity; without blocks, a
// new one.
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

// copyOut gives the events memory of their own: a block for the payloads, a
// string for the keys and offsets.
func (c *cursor) copyOut(events []Stored, memory *blocks) {
	size := 0
	for i := range events {
		size += len(events[i].Payload)
	}
	block, text, from := memory.take(size), string(c.scratch.text), 0
	for i := range events {
		e := &events[i]
		at := len(block)
		block = append(block, e.Payload...)
		e.Payload = block[at:len(block):len(block)]
		key, offset := c.scratch.ends[2*i], c.scratch.ends[2*i+1]
		e.Key, e.Offset = text[from:key], text[key:offset]
		from = offset
	}
	c.scratch.text, c.scratch.ends = c.scratch.text[:0], c.scratch.ends[:0]
}

func (c *cursor) corrupt(why string) error {
	return &CorruptError{File: filePath(c.dir, c.segment.name), At: c.segment.fileAt(c.position), Why: why}
}
