package disklog

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// scratch is the memory of a cursor, reused by later ones.
type scratch struct {
	buf  []byte
	text []byte // keys and offsets of the events that copyOut hasn't copied yet
	ends []int  // the end of each of them in text
}

func (s *scratch) keep(position int64, key []byte) {
	s.text = append(s.text, key...)
	s.ends = append(s.ends, len(s.text))
	s.text = strconv.AppendInt(s.text, position, 10)
	s.ends = append(s.ends, len(s.text))
}

var scratches = sync.Pool{New: func() any { return &scratch{buf: make([]byte, readBuffer)} }}

// cursor reads the records of a segment in order and checks them.
type cursor struct {
	segment     *segment
	file        file
	dir         string
	position    int64 // of the next record
	sequence    int64 // of its event
	lastIndexed int64 // position of the last event known to be in the index
	end         int64
	chunk       int // bytes to read at once
	scratch     *scratch
	buf         []byte // bytes of the file from position on
}

// newCursor returns a cursor at the last event in the index of an acquired segment
// for which beyond is false, or at the segment's first event. beyond must be false
// up to some event, and true from there on.
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

// buffered reports whether the whole next record is in the buffer.
func (c *cursor) buffered() bool {
	f, ok := parseRecord(c.buf, c.segment.mark)
	return ok && f.size <= len(c.buf)
}

// next returns the record at the cursor and advances. The bytes are valid until the
// next call for which buffered is false. With a [*CorruptError] the cursor does not
// advance.
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
		return record{}, nil, c.corrupt(fmt.Sprintf("event %d in place of event %d", f.sequence, c.sequence))
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

// estimate returns how many bytes to read at once to skip to the event next and read
// the events asked for, without reading much more.
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
		return c.corrupt("file is too short")
	}
	n = int(min(int64(max(n, c.chunk)), c.end-c.position))
	if n > len(c.scratch.buf) {
		c.scratch.buf = make([]byte, n)
	}
	got, err := c.file.ReadAt(c.scratch.buf[:n], c.segment.fileAt(c.position))
	if got < n {
		if errors.Is(err, io.EOF) {
			return c.corrupt("file is too short")
		}
		return err
	}
	c.buf = c.scratch.buf[:n]
	return nil
}

// copyOut copies the events' data out of the cursor's buffers: the payloads into one
// block, the keys and offsets into one string.
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
	return &CorruptError{File: filePath(c.dir, c.segment.name), Offset: c.segment.fileAt(c.position), Why: why}
}
