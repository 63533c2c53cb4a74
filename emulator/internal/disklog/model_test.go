package disklog

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// model is the expected content of a log, in the simplest form.
type model struct {
	events []Stored // all that ever were, by sequence number
	ends   []int64  // position after each
	first  int64
	batch  Batch // used again and again
}

func (m *model) next() int64 { return int64(len(m.events)) }

func (m *model) end() int64 {
	if len(m.ends) == 0 {
		return 0
	}
	return m.ends[len(m.ends)-1]
}

// append adds a batch; the log's own enqueued times are filled in by check.
func (m *model) append(batch []Message) {
	for i := range batch {
		m.events = append(m.events, Stored{
			Sequence: m.next(),
			Offset:   formatOffset(m.end()),
			Key:      batch[i].Key,
			Payload:  bytes.Clone(batch[i].Payload),
		})
		m.ends = append(m.ends, m.end()+recordSize(&batch[i]))
	}
}

// read is Read by its definition.
func (m *model) read(next int64, maxEvents, maxBytes int) []Stored {
	var got []Stored
	for q := max(next, m.first); q < m.next() && maxEvents > 0; q++ {
		e := m.events[q]
		size := len(e.Key) + len(e.Payload)
		if size > maxBytes && len(got) > 0 {
			break
		}
		got, maxEvents, maxBytes = append(got, e), maxEvents-1, maxBytes-size
	}
	return got
}

// seek returns the first event left for which reached is true.
func (m *model) seek(reached func(q int64) bool) int64 {
	for q := m.first; q < m.next(); q++ {
		if reached(q) {
			return q
		}
	}
	return m.next()
}

func sameEvent(a, b Stored) error {
	if a.Sequence != b.Sequence || a.Offset != b.Offset || a.Key != b.Key || !bytes.Equal(a.Payload, b.Payload) || !a.Enqueued.Equal(b.Enqueued) {
		return fmt.Errorf("got event %d at %s, %v, key %q, %d bytes; want %d at %s, %v, key %q, %d bytes",
			a.Sequence, a.Offset, a.Enqueued, a.Key, len(a.Payload), b.Sequence, b.Offset, b.Enqueued, b.Key, len(b.Payload))
	}
	return nil
}

func sameEvents(got, want []Stored) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d events, want %d", len(got), len(want))
	}
	for i := range got {
		if err := sameEvent(got[i], want[i]); err != nil {
			return err
		}
	}
	return nil
}

// learn copies the enqueued times of the events from sequence number q on,
// which must not decrease nor lie outside from and to.
func (m *model) learn(l *Log, q int64, from, to time.Time) error {
	events, err := l.Read(q, 1<<30, 1<<30, nil)
	if err != nil {
		return err
	}
	for _, e := range events {
		if q > 0 {
			from = later(from, m.events[q-1].Enqueued)
		}
		if e.Sequence != q || q >= m.next() {
			return fmt.Errorf("event %d appeared, want %d of %d", e.Sequence, q, m.next())
		}
		if e.Enqueued.Before(from) || e.Enqueued.After(later(from, to)) || e.Enqueued.Nanosecond()%1e6 != 0 {
			return fmt.Errorf("event %d enqueued at %v, want a millisecond from %v to %v", q, e.Enqueued, from, to)
		}
		m.events[q].Enqueued = e.Enqueued
		q++
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// check compares the results of all reads and seeks.
func (m *model) check(l *Log, rng *rand.Rand) error {
	info := l.Info()
	want := Info{First: m.first, Last: m.next() - 1, LastOffset: "-1", End: m.end(), Empty: m.first == m.next()}
	if n := m.next(); n > 0 {
		want.LastOffset, want.LastEnqueued = m.events[n-1].Offset, m.events[n-1].Enqueued
	}
	if info != want {
		return fmt.Errorf("info: got %+v, want %+v", info, want)
	}
	for range 8 {
		next, count, size := rng.Int64N(m.next()+3)-1, rng.IntN(40), rng.IntN(20_000)
		got, err := l.Read(next, count, size, nil)
		if err == nil {
			err = sameEvents(got, m.read(next, count, size))
		}
		if err == nil {
			err = l.ReadInto(&m.batch, next, count, size)
		}
		if err == nil {
			err = sameEvents(m.batch.Events, got)
		}
		if err != nil {
			return fmt.Errorf("read from %d, up to %d events and %d bytes: %w", next, count, size, err)
		}
		offset := rng.Int64N(m.end() + 2)
		next, err = l.SeekOffset(offset)
		if want := m.seek(func(q int64) bool {
			return m.ends[q]-int64(recordHeader+len(m.events[q].Key)+len(m.events[q].Payload)) >= offset
		}); err != nil || next != want {
			return fmt.Errorf("seek offset %d: got %d, %v, want %d", offset, next, err, want)
		}
		if m.next() == 0 {
			continue
		}
		ms := m.events[rng.Int64N(m.next())].Enqueued.UnixMilli() + rng.Int64N(3) - 1
		next, err = l.SeekTime(ms)
		if want := m.seek(func(q int64) bool { return m.events[q].Enqueued.UnixMilli() >= ms }); err != nil || next != want {
			return fmt.Errorf("seek time %d: got %d, %v, want %d", ms, next, err, want)
		}
	}
	return nil
}

// noise is what payloads are cut from.
var noise = func() []byte {
	rng := rand.New(rand.NewPCG(0, 0))
	b := make([]byte, 30_000)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}()

func randomBatch(rng *rand.Rand) []Message {
	batch := make([]Message, rng.IntN(6))
	if rng.IntN(20) == 0 {
		batch = make([]Message, 100)
	}
	for i := range batch {
		size := rng.IntN(200)
		switch rng.IntN(20) {
		case 0:
			size = rng.IntN(20_000)
		case 1:
			size = 0
		}
		batch[i] = Message{Payload: bytes.Clone(noise[rng.IntN(1000):][:size])}
		if rng.IntN(2) == 0 {
			batch[i].Key = fmt.Sprintf("key %d %s", rng.IntN(100), make([]byte, rng.IntN(30)))
		}
	}
	return batch
}

// TestModel runs random operations on a log in memory and on one on disk, which
// is reopened now and then, and compares them with the model.
func TestModel(t *testing.T) {
	for _, where := range []string{"memory", "disk"} {
		t.Run(where, func(t *testing.T) {
			seeds, dir := uint64(40), ""
			if where == "disk" {
				seeds = 8 // every append waits for the disk
			}
			for seed := range seeds {
				if where == "disk" {
					dir = t.TempDir()
				}
				if err := runModel(dir, seed, 120); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

func runModel(dir string, seed uint64, steps int) (err error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	config := &Config{SegmentBytes: 1 + rng.Int64N(int64(1)<<(4+rng.IntN(15))), Now: func() time.Time { return now }}
	l, err := Open(dir, config)
	if err != nil {
		return err
	}
	defer func() {
		if e := l.Close(); err == nil {
			err = e
		}
	}()
	m := &model{}
	for step := range steps {
		// The clock stops, runs, and is set back.
		now = now.Add(time.Duration(rng.Int64N(5)-1) * 700 * time.Microsecond)
		switch n := rng.IntN(20); {
		case n < 12:
			batch := randomBatch(rng)
			first, err := l.Append(context.Background(), batch)
			if err != nil || first != m.next() {
				return fmt.Errorf("step %d: append: got %d, %v, want %d", step, first, err, m.next())
			}
			m.append(batch)
			if err := m.learn(l, max(first, 0), now.Truncate(time.Millisecond), now); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		case n == 12:
			before := rng.Int64N(m.next() + 10)
			if rng.IntN(3) > 0 {
				before = m.first + rng.Int64N(10)
			}
			if err := l.Trim(before); err != nil {
				return fmt.Errorf("step %d: trim: %w", step, err)
			}
			m.first = max(m.first, min(before, m.next()))
		case n == 13 && dir != "":
			if err := l.Close(); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if l, err = Open(dir, config); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		if err := m.check(l, rng); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}
