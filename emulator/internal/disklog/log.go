package disklog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config adjusts a [Log]. The zero value and nil work.
type Config struct {
	SegmentBytes  int64            // size from which a segment file is full, up to 1 GiB; default 64 MiB, 1 MiB in memory
	MaxBatchBytes int64            // largest batch, with 40 bytes of overhead per event, up to 256 MiB; default 16 MiB
	Now           func() time.Time // clock for enqueued times; default [time.Now]
}

const (
	defaultSegment       = 64 << 20
	defaultMemorySegment = 1 << 20
	maxSegment           = 1 << 30
	defaultBatch         = 16 << 20
	maxRecord            = 256 << 20 // the largest batch in one record; a larger size is damage
)

func (c *Config) withDefaults(dir string) (Config, error) {
	var full Config
	if c != nil {
		full = *c
	}
	if full.SegmentBytes == 0 {
		full.SegmentBytes = defaultSegment
		if dir == "" {
			full.SegmentBytes = defaultMemorySegment
		}
	}
	if full.MaxBatchBytes == 0 {
		full.MaxBatchBytes = defaultBatch
	}
	if full.Now == nil {
		full.Now = time.Now
	}
	if full.SegmentBytes < 0 || full.SegmentBytes > maxSegment {
		return full, fmt.Errorf("segments of %d bytes: choose up to %d", full.SegmentBytes, maxSegment)
	}
	if full.MaxBatchBytes < 0 || full.MaxBatchBytes > maxRecord {
		return full, fmt.Errorf("batches of %d bytes: choose up to %d", full.MaxBatchBytes, maxRecord)
	}
	return full, nil
}

// Message is an event on its way into a log.
type Message struct {
	Key     string // up to 65,535 bytes
	Payload []byte
}

// Stored is an event of a log.
type Stored struct {
	Sequence int64     // consecutive from 0
	Offset   string    // the position in the log, in decimal; strictly increasing
	Enqueued time.Time // when it was appended, in whole milliseconds; never decreasing
	Key      string
	Payload  []byte
}

// Info describes what a log holds.
type Info struct {
	First        int64     // sequence number of the oldest event, or of the next one if the log is empty
	Last         int64     // sequence number of the newest event; First-1 if the log is empty
	LastOffset   string    // of the newest event, even after it was trimmed; "-1" if there never was one
	LastEnqueued time.Time // of the newest event, even after it was trimmed; zero if there never was one
	End          int64     // the offset that the next event gets
	Empty        bool
}

// Log is an append-only log of events. Its methods may be called concurrently.
type Log struct {
	store  storage
	config Config

	// writeLock is held during a write: a mutex that can be waited for in a select.
	// It guards the fields up to unusable. Its holder alone changes next, end, last
	// and segments, and reads them without mu.
	writeLock  chan struct{}
	allocated  int64  // size of the last segment's file, including space allocated ahead
	tail       []byte // the last bytes of that file, at most tailBytes
	writer     writer
	savedState state
	unusable   error // why appends are refused, if they are

	mu         sync.Mutex // after writeLock in the lock order; never held over I/O
	queue      []*appendRequest
	segments   []*segment // in order; the last is written to
	openSealed []*segment // sealed segments with open files, least recently read first
	first      int64
	next       int64 // sequence number of the next event
	end        int64 // position after the last durable record
	last       lastEvent
	appended   chan struct{} // closed when next rises; nil if no reader waits
	closed     bool
}

// lastEvent describes the last event before a position in the log, even after it was trimmed.
type lastEvent struct {
	position int64 // -1 if there never was one
	enqueued int64 // in ms
}

// Open opens the log in the directory dir, and creates it if it doesn't exist. With
// dir "" the log is empty and lives in memory until it is closed.
//
// The directory is locked until Close; [ErrLocked] means that it is in use, a
// [*CorruptError] that acknowledged events are damaged or missing.
func Open(dir string, config *Config) (*Log, error) {
	c, err := config.withDefaults(dir)
	if err != nil {
		return nil, err
	}
	var store storage = newMemory()
	if dir != "" {
		if store, err = openDisk(dir); err != nil {
			return nil, err
		}
	}
	return openStorage(store, c)
}

// Info returns what the log holds.
func (l *Log) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := Info{First: l.first, Last: l.next - 1, LastOffset: formatOffset(l.last.position), End: l.end, Empty: l.first == l.next}
	if l.last.position >= 0 {
		info.LastEnqueued = time.UnixMilli(l.last.enqueued).UTC()
	}
	return info
}

// Wait returns nil once the log holds an event of sequence number next or
// higher, ctx's error if that ends first, and [ErrClosed] once it is closed.
func (l *Log) Wait(ctx context.Context, next int64) error {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return ErrClosed
		}
		if next < l.next && l.first < l.next {
			l.mu.Unlock()
			return nil
		}
		if l.appended == nil {
			l.appended = make(chan struct{})
		}
		grown := l.appended
		l.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake ends all waits; mu is held.
func (l *Log) wake() {
	if l.appended != nil {
		close(l.appended)
		l.appended = nil
	}
}

// active is the segment that is written to.
func (l *Log) active() *segment { return l.segments[len(l.segments)-1] }

func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Close waits for the write in progress and releases the files and the
// directory. Appends that wait, and all other waits, end with [ErrClosed].
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.wake()
	l.mu.Unlock()

	l.writeLock <- struct{}{}
	defer func() { <-l.writeLock }()
	// Frees the space allocated ahead. The log is complete even if this fails.
	errs := []error{l.active().file.truncate(l.active().fileAt(l.end)), l.saveState(l.first)}
	for _, s := range l.segments {
		l.mu.Lock()
		idle := l.retire(s, false)
		l.mu.Unlock()
		if idle {
			errs = append(errs, l.closeRetired(s))
		}
	}
	errs = append(errs, l.store.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close log %s: %w", l.store.path(), err)
	}
	return nil
}
