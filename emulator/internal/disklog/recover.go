package disklog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"
)

func filePath(dir, name string) string { return filepath.Join(dir, name) }

// openStorage opens the log in store, and closes store if it cannot.
func openStorage(store storage, config Config) (*Log, error) {
	l := &Log{store: store, config: config, writeLock: make(chan struct{}, 1), last: lastEvent{position: -1}}
	if err := l.recover(); err != nil {
		for _, s := range l.segments {
			err = errors.Join(err, s.close())
		}
		return nil, errors.Join(fmt.Errorf("open log %s: %w", store.path(), err), store.close())
	}
	return l, nil
}

func (l *Log) recover() (err error) {
	if l.savedState, err = loadState(l.store); err != nil {
		return err
	}
	l.first = l.savedState.First
	if err := l.loadSegments(); err != nil {
		return err
	}
	if err := l.dropTrimmed(); err != nil {
		return err
	}
	if len(l.segments) == 0 && l.savedState.Next > 0 {
		return l.missing(0, l.first, l.savedState.Next)
	}
	if len(l.segments) == 0 {
		s, err := createSegment(l.store, 0, 0, l.last)
		if err != nil {
			return fmt.Errorf("create segment: %w", err)
		}
		l.segments = append(l.segments, s)
	}
	if err := l.checkSealed(); err != nil {
		return err
	}
	if err := l.recoverLast(); err != nil {
		return err
	}
	if oldest := l.segments[0].sequence; l.first < oldest {
		return l.missing(0, l.first, oldest)
	}
	if l.next < l.savedState.Next {
		return l.missing(l.active().fileAt(l.end), l.next, l.savedState.Next)
	}
	return nil
}

// missing returns the error for the durable events from first up to, but not
// including, next that the log doesn't have.
func (l *Log) missing(at, first, next int64) error {
	name := segmentName(first)
	if n := len(l.segments); n > 0 && l.active().sequence <= first {
		name = l.active().name
	}
	return &CorruptError{File: filePath(l.store.path(), name), Offset: at, Why: fmt.Sprintf("events %d to %d are missing", first, next-1)}
}

// loadSegments reads the segments' headers, and removes files that were never part
// of the log.
func (l *Log) loadSegments() error {
	names, err := l.store.list()
	if err != nil {
		return err
	}
	sort.Strings(names)
	var files []string
	for _, name := range names {
		if strings.HasSuffix(name, temporarySuffix) {
			if err := l.store.remove(name); err != nil {
				return err
			}
		}
		if isSegmentName(name) {
			files = append(files, name)
		}
	}
	for i, name := range files {
		s, size, err := l.loadSegment(name)
		if err != nil {
			return err
		}
		if s != nil {
			l.segments = append(l.segments, s)
			continue
		}
		if i < len(files)-1 || size > segmentHeader {
			return &CorruptError{File: filePath(l.store.path(), name), Why: "not a segment header"}
		}
		// The process or the machine failed while it was created.
		if err := l.store.remove(name); err != nil {
			return err
		}
		if err := l.store.syncDir(); err != nil {
			return err
		}
	}
	return nil
}

// loadSegment returns nil and the file's size if the header is invalid.
func (l *Log) loadSegment(name string) (s *segment, size int64, err error) {
	f, err := l.store.open(name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err = f.size(); err != nil {
		return nil, 0, err
	}
	header := make([]byte, segmentHeader)
	if _, err := f.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	s, ok := parseSegment(name, header)
	if !ok {
		return nil, size, nil
	}
	return s, size, nil
}

// dropTrimmed removes the segments that an interrupted Trim didn't.
func (l *Log) dropTrimmed() error {
	for len(l.segments) > 1 && l.segments[1].sequence <= l.first {
		if err := l.store.remove(l.segments[0].name); err != nil {
			return err
		}
		l.segments = l.segments[1:]
	}
	return nil
}

// checkSealed checks the sizes of sealed segments against the positions of their
// successors.
func (l *Log) checkSealed() error {
	for i, s := range l.segments[:len(l.segments)-1] {
		f, err := s.open(l.store)
		if err != nil {
			return err
		}
		size, err := f.size()
		if err = errors.Join(err, s.close()); err != nil {
			return err
		}
		next := l.segments[i+1]
		if next.sequence <= s.sequence || next.position <= s.position {
			return &CorruptError{File: filePath(l.store.path(), next.name), Why: "does not follow the segment before it"}
		}
		if size < s.fileAt(next.position) {
			return &CorruptError{File: filePath(l.store.path(), s.name), Offset: size, Why: fmt.Sprintf("file is too short, events below %d are missing", next.sequence)}
		}
	}
	return nil
}

// recoverLast finds the end of the log, truncates torn records, and makes the last
// write durable again.
func (l *Log) recoverLast() error {
	s := l.active()
	f, err := s.open(l.store)
	if err != nil {
		return err
	}
	size, err := f.size()
	if err != nil {
		return err
	}
	write, err := l.scan(s, size)
	if err != nil {
		return err
	}
	l.allocated = s.fileAt(l.end)
	from := s.fileAt(write)
	if write == s.position {
		from = 0 // the header is as much in doubt as the first write
	}
	if err := f.truncate(l.allocated); err != nil {
		return fmt.Errorf("truncate the torn end: %w", err)
	}
	if err := rewrite(f, from, l.allocated); err != nil {
		return fmt.Errorf("write the last events again: %w", err)
	}
	if err := f.sync(); err != nil {
		return fmt.Errorf("sync the last events: %w", err)
	}
	if err := l.store.syncDir(); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	l.tail = make([]byte, min(l.allocated, tailBytes))
	if _, err := f.ReadAt(l.tail, l.allocated-int64(len(l.tail))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// scan reads the records of the last segment, whose file has the given size, and
// sets the end of the log. It returns the position at which the last write
// began.
func (l *Log) scan(s *segment, size int64) (write int64, err error) {
	l.next, l.end, l.last = s.sequence, s.position, s.previous
	c, err := l.newCursor(s, s.position+size-segmentHeader, func(int64, int64, int64) bool { return true })
	if err != nil {
		return 0, err
	}
	defer c.close()
	write = s.position
	begun, left := write, 0 // of the previous record
	for {
		at := c.position
		f, _, err := c.next()
		var damage *CorruptError
		if err != nil && !errors.As(err, &damage) {
			return 0, err
		}
		follows := (left == 0 || f.left == left-1) && (f.written == 0 || at-f.written == begun) && f.enqueued >= l.last.enqueued
		if err != nil || !follows {
			s.truncateIndex(l.end)
			return write, c.findLaterWrite(at, l.end)
		}
		if f.written == 0 {
			begun = at
		}
		left = f.left
		if left == 0 {
			l.next, l.end, l.last, write = c.sequence, c.position, lastEvent{at, f.enqueued}, begun
		}
	}
}

// findLaterWrite searches from position at for a record of a write that began after
// end. Such a record proves that the damaged record at end had been durable and
// acknowledged: then it returns a [*CorruptError].
func (c *cursor) findLaterWrite(at, end int64) error {
	mark := binary.LittleEndian.AppendUint32(nil, c.segment.mark)
	buf := make([]byte, 64<<10)
	for c.end-at >= recordHeader {
		n, err := c.file.ReadAt(buf[:min(int64(len(buf)), c.end-at)], c.segment.fileAt(at))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < recordHeader {
			return nil
		}
		for from := 0; ; from++ {
			i := bytes.Index(buf[from:n], mark)
			if i < 0 {
				break
			}
			from += i
			later, err := c.isLaterWrite(at+int64(from), end)
			if err != nil {
				return err
			}
			if later {
				return &CorruptError{File: filePath(c.dir, c.segment.name), Offset: c.segment.fileAt(end),
					Why: fmt.Sprintf("the event here is damaged, but a later one is intact at byte %d", c.segment.fileAt(at+int64(from)))}
			}
		}
		at += int64(n - len(mark) + 1)
	}
	return nil
}

// isLaterWrite reports whether there is an intact record at position at, of a write
// that began after end.
func (c *cursor) isLaterWrite(at, end int64) (bool, error) {
	header := make([]byte, recordHeader)
	if n, err := c.file.ReadAt(header, c.segment.fileAt(at)); n < recordHeader {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	f, ok := parseRecord(header, c.segment.mark)
	if !ok || at-f.written <= end || int64(f.size) > c.end-at {
		return false, nil
	}
	whole := &cursor{segment: c.segment, file: c.file, dir: c.dir, position: at, end: c.end, scratch: &scratch{}}
	if err := whole.fill(f.size); err != nil {
		return false, err
	}
	return checksumValid(whole.buf, at), nil
}

// rewrite reads and writes the bytes from up to to, so that the next fsync covers
// them.
func rewrite(f file, from, to int64) error {
	buf := make([]byte, min(to-from, writeBuffer))
	for from < to {
		n := min(int64(len(buf)), to-from)
		if _, err := f.ReadAt(buf[:n], from); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := f.WriteAt(buf[:n], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}
