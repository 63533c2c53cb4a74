package disklog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"sync"
)

const (
	segmentHeader = 64
	segmentMagic  = "sluice\x00\x01"
	segmentSuffix = ".log"
	indexStep     = 16 << 10
	maxOpenSealed = 4 // sealed segments with open files, and their indexes, per log
)

// segment is one file of a log. All but the last are sealed: full, and never written
// again.
type segment struct {
	name     string
	mark     uint32    // at the beginning of every record
	sequence int64     // of the first event
	position int64     // of the first event
	previous lastEvent // the event before that

	refs    int  // readers; guarded by Log.mu, like the next two
	retired bool // no longer in the log; closed when refs is 0
	remove  bool // and its file removed

	mu    sync.Mutex   // after Log.mu in the lock order
	file  file         // nil if closed, but never for the last segment
	index []indexEntry // in order, without the first event; readers add entries as they pass records
}

// indexEntry is the place of an event, relative to its segment's first event.
type indexEntry struct {
	sequence uint32
	position uint32
	enqueued int64
}

func segmentName(sequence int64) string { return fmt.Sprintf("%020d%s", sequence, segmentSuffix) }

func isSegmentName(name string) bool {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && n >= 0
}

// fileAt converts a position in the log to an offset in the segment's file.
func (s *segment) fileAt(position int64) int64 { return segmentHeader + position - s.position }

// createSegment makes a durable segment without events. The caller syncs the
// directory, and removes the file if there is an error.
func createSegment(store storage, sequence, position int64, before lastEvent) (*segment, error) {
	s := &segment{name: segmentName(sequence), mark: rand.Uint32() | 1, sequence: sequence, position: position, previous: before}
	f, err := store.create(s.name)
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(s.header(), 0); err == nil {
		err = f.sync()
	}
	if err != nil {
		_ = f.Close() // err says more
		return nil, err
	}
	s.file = f
	return s, nil
}

func (s *segment) header() []byte {
	b := make([]byte, segmentHeader)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[12:], s.mark)
	binary.LittleEndian.PutUint64(b[16:], uint64(s.sequence))
	binary.LittleEndian.PutUint64(b[24:], uint64(s.position))
	binary.LittleEndian.PutUint64(b[32:], uint64(s.previous.enqueued))
	binary.LittleEndian.PutUint64(b[40:], uint64(s.previous.position))
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

// parseSegment parses the header of the segment file name. It reports false if b is
// not a valid header.
func parseSegment(name string, b []byte) (*segment, bool) {
	if len(b) != segmentHeader || string(b[:8]) != segmentMagic ||
		binary.LittleEndian.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return nil, false
	}
	s := &segment{
		name:     name,
		mark:     binary.LittleEndian.Uint32(b[12:]),
		sequence: int64(binary.LittleEndian.Uint64(b[16:])),
		position: int64(binary.LittleEndian.Uint64(b[24:])),
		previous: lastEvent{
			enqueued: int64(binary.LittleEndian.Uint64(b[32:])),
			position: int64(binary.LittleEndian.Uint64(b[40:])),
		},
	}
	return s, s.name == segmentName(s.sequence) && s.position >= 0
}

// open returns the segment's file, which stays open until the caller releases the
// segment.
func (s *segment) open(store storage) (file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		f, err := store.open(s.name)
		if err != nil {
			return nil, err
		}
		s.file = f
	}
	return s.file, nil
}

// close closes the file and drops the index. No reader has acquired the segment.
func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.file
	s.file, s.index = nil, nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// addToIndex adds an event to the index, if it is at least indexStep after the last
// indexed one.
func (s *segment) addToIndex(position, sequence, enqueued int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if position-s.lastIndexed() >= indexStep {
		s.index = append(s.index, s.newEntry(position, sequence, enqueued))
	}
}

func (s *segment) newEntry(position, sequence, enqueued int64) indexEntry {
	return indexEntry{sequence: uint32(sequence - s.sequence), position: uint32(position - s.position), enqueued: enqueued}
}

// lookup returns the last event in the index for which beyond is false, or the
// segment's first event if there is none.
func (s *segment) lookup(beyond func(position, sequence, enqueued int64) bool) (position, sequence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := sort.Search(len(s.index), func(i int) bool {
		e := s.index[i]
		return beyond(s.position+int64(e.position), s.sequence+int64(e.sequence), e.enqueued)
	})
	if n == 0 {
		return s.position, s.sequence
	}
	e := s.index[n-1]
	return s.position + int64(e.position), s.sequence + int64(e.sequence)
}

// lastIndexed returns the position of the last event in the index, or of the
// segment's first; mu is held.
func (s *segment) lastIndexed() int64 {
	if n := len(s.index); n > 0 {
		return s.position + int64(s.index[n-1].position)
	}
	return s.position
}

// truncateIndex drops the index entries from position on.
func (s *segment) truncateIndex(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := sort.Search(len(s.index), func(i int) bool { return s.position+int64(s.index[i].position) >= position })
	s.index = s.index[:n]
}

// acquire keeps the i-th segment open until release. It returns the position after
// the segment's last record. mu is held.
func (l *Log) acquire(i int) (s *segment, end int64) {
	s = l.segments[i]
	s.refs++
	if i == len(l.segments)-1 {
		return s, l.end
	}
	l.markOpen(s)
	return s, l.segments[i+1].position
}

// markOpen makes s the most recently read of the open sealed segments, and closes
// the least recently read ones if there are too many. mu is held.
func (l *Log) markOpen(s *segment) {
	l.unmarkOpen(s)
	l.openSealed = append(l.openSealed, s)
	for i := 0; len(l.openSealed) > maxOpenSealed && i < len(l.openSealed); i++ {
		if idle := l.openSealed[i]; idle.refs == 0 && idle != s {
			// The file was only read: an error of Close has no consequence.
			_ = idle.close()
			l.unmarkOpen(idle)
			i--
		}
	}
}

func (l *Log) unmarkOpen(s *segment) {
	for i, w := range l.openSealed {
		if w == s {
			l.openSealed = append(l.openSealed[:i], l.openSealed[i+1:]...)
			return
		}
	}
}

// release is the counterpart of acquire.
func (l *Log) release(s *segment) {
	l.mu.Lock()
	s.refs--
	last := s.retired && s.refs == 0
	l.mu.Unlock()
	if last {
		// A file that cannot be removed now is removed when the log is opened again.
		_ = l.closeRetired(s)
	}
}

// retire marks s as no longer in the log, and reports whether the caller has to call
// closeRetired; otherwise its last reader does. mu is held.
func (l *Log) retire(s *segment, remove bool) (idle bool) {
	s.retired, s.remove = true, remove
	l.unmarkOpen(s)
	return s.refs == 0
}

// closeRetired closes a retired segment that has no readers, and removes its file if
// it was retired for that.
func (l *Log) closeRetired(s *segment) error {
	err := s.close()
	if s.remove {
		err = errors.Join(err, l.store.remove(s.name))
	}
	return err
}
