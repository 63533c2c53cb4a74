// Package disklog is a durable append-only log of events.
package disklog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// ErrClosed: the log was closed.
var ErrClosed = errors.New("log is closed")

type Config struct {
	SegmentBytes int64
	Now          func() time.Time
}

type Message struct {
	Key     string
	Payload []byte
}

type Stored struct {
	Sequence int64
	Offset   string
	Enqueued time.Time
	Key      string
	Payload  []byte
}

type Info struct {
	First, Last  int64
	End          int64
	LastOffset   string
	LastEnqueued time.Time
	Empty        bool
}

// Log is a placeholder in memory.
type Log struct {
	mu     sync.Mutex
	now    func() time.Time
	first  int64
	events []Stored
	pos    []int64
	end    int64
	last   Info
	grown  chan struct{}
	closed bool
}

func Open(dir string, c *Config) (*Log, error) {
	return &Log{now: c.Now, grown: make(chan struct{}), last: Info{Last: -1, LastOffset: "-1"}}, nil
}

func (l *Log) Append(ctx context.Context, msgs []Message) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrClosed
	}
	first := l.last.Last + 1
	for _, m := range msgs {
		t := l.now().UTC().Truncate(time.Millisecond)
		if t.Before(l.last.LastEnqueued) {
			t = l.last.LastEnqueued
		}
		l.last.Last++
		l.last.LastOffset = strconv.FormatInt(l.end, 10)
		l.last.LastEnqueued = t
		l.events = append(l.events, Stored{Sequence: l.last.Last, Offset: l.last.LastOffset, Enqueued: t, Key: m.Key, Payload: append([]byte{}, m.Payload...)})
		l.pos = append(l.pos, l.end)
		l.end += int64(40 + len(m.Key) + len(m.Payload))
	}
	close(l.grown)
	l.grown = make(chan struct{})
	return first, nil
}

func (l *Log) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.last
	i.First, i.End, i.Empty = l.first, l.end, len(l.events) == 0
	return i
}

func (l *Log) Read(next int64, maxEvents, maxBytes int, dst []Stored) ([]Stored, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return dst, ErrClosed
	}
	bytes := 0
	for i := max(next, l.first) - l.first; i < int64(len(l.events)); i++ {
		e := l.events[i]
		bytes += len(e.Payload) + len(e.Key)
		maxEvents--
		if maxEvents < 0 || bytes > maxBytes && bytes > len(e.Payload)+len(e.Key) {
			break
		}
		dst = append(dst, e)
	}
	return dst, nil
}

func (l *Log) Wait(ctx context.Context, next int64) error {
	for {
		l.mu.Lock()
		ok, closed, grown := l.last.Last >= next, l.closed, l.grown
		l.mu.Unlock()
		if closed {
			return ErrClosed
		}
		if ok {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) SeekTime(ms int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Enqueued.UnixMilli() >= ms {
			return e.Sequence, nil
		}
	}
	return l.last.Last + 1, nil
}

func (l *Log) SeekOffset(o int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.events {
		if l.pos[i] >= o {
			return e.Sequence, nil
		}
	}
	return l.last.Last + 1, nil
}

func (l *Log) Trim(before int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(max(before-l.first, 0), int64(len(l.events)))
	l.first += n
	l.events, l.pos = l.events[n:], l.pos[n:]
	return nil
}

func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.grown)
		l.grown = make(chan struct{})
	}
	return nil
}

type DirLock struct{}

func LockDir(string) (*DirLock, error) { return &DirLock{}, nil }
func (*DirLock) Unlock() error         { return nil }
func MakeDir(dir string) error         { return os.MkdirAll(dir, 0o777) }
func ReplaceFile(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}
