package disklog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrent appends in several goroutines while others read, of which the first
// trims what it has read. Every batch must be whole and at the sequence number that
// Append returned; a reader may miss only what was trimmed.
func TestConcurrent(t *testing.T) {
	const appenders, batches, size = 4, 25, 5
	for _, dir := range []string{"", t.TempDir()} {
		l := mustOpen(t, dir, &Config{SegmentBytes: 2000})
		var wg sync.WaitGroup
		placed := make([]map[string]int64, appenders) // by payload
		for a := range placed {
			placed[a] = map[string]int64{}
			wg.Go(func() {
				for b := range batches {
					var texts []string
					for i := range size {
						texts = append(texts, fmt.Sprintf("appender %d batch %d event %d", a, b, i))
					}
					first, err := l.Append(context.Background(), messages(texts...))
					if err != nil {
						t.Error(err)
						return
					}
					for i, text := range texts {
						placed[a][text] = first + int64(i)
					}
				}
			})
		}
		seen := make([]map[string]int64, 3)
		for r := range seen {
			seen[r] = map[string]int64{}
			wg.Go(func() {
				var events []Stored
				for next := int64(0); next < appenders*batches*size; {
					err := l.Wait(context.Background(), next)
					if err == nil {
						events, err = l.Read(next, 1+r*7, 1<<20, events[:0])
					}
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range events {
						if e.Sequence != next && (r == 0 || e.Sequence < next || e.Sequence > l.Info().First) {
							t.Errorf("reader %d got event %d, want %d", r, e.Sequence, next)
							return
						}
						seen[r][string(e.Payload)] = e.Sequence
						next = e.Sequence + 1
					}
					if r == 0 && next < appenders*batches*size {
						if err := l.Trim(next - 10); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		all := map[string]int64{}
		for _, texts := range placed {
			maps.Copy(all, texts)
		}
		if !maps.Equal(seen[0], all) {
			t.Errorf("the first reader saw %d events, want the %d that were appended, each at its place", len(seen[0]), len(all))
		}
		for r := range seen {
			for text, q := range seen[r] {
				if all[text] != q {
					t.Fatalf("reader %d saw %q at %d, want %d", r, text, q, all[text])
				}
			}
		}
		mustClose(t, l)
	}
}

// TestReadWhileTrimmed trims during a slow read: the reader continues with the
// remaining events, and its files are closed only after it has released them.
func TestReadWhileTrimmed(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, &Config{SegmentBytes: 100})
	defer mustClose(t, l)
	for i := range 10 {
		mustAppend(t, l, fmt.Sprintf("event %d", i))
	}
	l.mu.Lock()
	held, _ := l.acquire(0)
	l.mu.Unlock()
	f, err := held.open(l.store)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Trim(7); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
		t.Errorf("read of a segment that was trimmed meanwhile: %v", err)
	}
	l.release(held)
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the segment's file after the last reader: %v, want it closed", err)
	}
	if _, err := os.Stat(filepath.Join(dir, held.name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the segment's file after the last reader: %v, want it removed", err)
	}
	if got := payloads(t, l); got != "event 7 event 8 event 9" {
		t.Errorf("read %q", got)
	}
}

// TestTrimAll trims everything: one small file is left, and sequence numbers and
// offsets continue, even after a restart.
func TestTrimAll(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, nil)
	mustAppend(t, l, "one", "two")
	before := l.Info()
	if err := l.Trim(100); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		info := l.Info()
		want := before
		want.First, want.Empty = 2, true
		if info != want {
			t.Errorf("info of a log trimmed empty: %+v, want %+v", info, want)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
		if err != nil || len(files) != 1 || filepath.Base(files[0]) != segmentName(2) {
			t.Errorf("files of a log trimmed empty: %v, %v", files, err)
		}
		mustClose(t, l)
		l = mustOpen(t, dir, nil)
	}
	defer mustClose(t, l)
	if first := mustAppend(t, l, "three"); first != 2 {
		t.Errorf("the next event is %d, want 2", first)
	}
	events, err := l.Read(0, 10, 1000, nil)
	if err != nil || len(events) != 1 || events[0].Offset != formatOffset(before.End) {
		t.Errorf("read %v, %v, want one event at %d", events, err, before.End)
	}
}

// TestOpenFiles reads a log of many segments: few files stay open.
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, &Config{SegmentBytes: 10})
	defer mustClose(t, l)
	for i := range 30 {
		mustAppend(t, l, fmt.Sprintf("event %d", i))
	}
	payloads(t, l)
	open := 0
	for _, s := range l.segments {
		if s.file != nil {
			open++
		}
	}
	if open != maxOpenSealed+1 {
		t.Errorf("%d of %d files are open, want %d", open, len(l.segments), maxOpenSealed+1)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, nil)
	if _, err := Open(dir, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("open twice: %v, want ErrLocked", err)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, dir, nil))
}

func TestLimits(t *testing.T) {
	l := mustOpen(t, "", &Config{MaxBatchBytes: 1000})
	defer mustClose(t, l)
	mustAppend(t, l, string(make([]byte, 1000-recordHeader-1)))
	for _, msgs := range [][]Message{
		messages(string(make([]byte, 1000-recordHeader))),
		{{Key: string(make([]byte, maxKey+1))}},
	} {
		if _, err := l.Append(context.Background(), msgs); !errors.Is(err, ErrTooLarge) {
			t.Errorf("append: %v, want ErrTooLarge", err)
		}
	}
	if first, err := l.Append(context.Background(), nil); first != 1 || err != nil {
		t.Errorf("append nothing: got %d, %v, want the next sequence number", first, err)
	}
	for _, c := range []Config{{SegmentBytes: -1}, {SegmentBytes: maxSegment + 1}, {MaxBatchBytes: maxRecord + 1}} {
		if _, err := Open("", &c); err == nil {
			t.Errorf("open with %+v: no error", c)
		}
	}
}

// TestLargeEvents has events that are larger than every buffer.
func TestLargeEvents(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, nil)
	want := 0
	for _, size := range []int{readBuffer - 100, readBuffer, writeBuffer + 1, 3 * writeBuffer, 10} {
		mustAppend(t, l, string(make([]byte, size)), "small", string(make([]byte, size)))
		want += 2*size + 5
	}
	for range 2 {
		events, err := l.Read(0, math.MaxInt, math.MaxInt, nil)
		got := 0
		for _, e := range events {
			got += len(e.Payload)
		}
		if err != nil || got != want || len(events) != 15 {
			t.Errorf("read %d events of %d bytes, %v, want 15 of %d", len(events), got, err, want)
		}
		mustClose(t, l)
		l = mustOpen(t, dir, nil)
	}
	mustClose(t, l)
}

// TestAppendContext cancels an append that waits for another write: nothing is
// appended. An append whose write has begun is finished.
func TestAppendContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustOpen(t, "", nil)
		defer mustClose(t, l)
		ctx, cancel := context.WithCancel(context.Background())
		outcome := make(chan error)
		try := func() {
			_, err := l.Append(ctx, messages("waiting"))
			outcome <- err
		}
		l.writeLock <- struct{}{} // somebody writes
		go try()
		synctest.Wait()
		cancel()
		if err := <-outcome; !errors.Is(err, context.Canceled) {
			t.Errorf("append cancelled while waiting: %v", err)
		}
		if _, err := l.Append(ctx, messages("late")); !errors.Is(err, context.Canceled) {
			t.Errorf("append with a cancelled context: %v", err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		go try()
		synctest.Wait()
		group := l.takeGroup() // somebody begins to write it
		cancel()
		synctest.Wait()
		group[0].finish(7, nil)
		if err := <-outcome; err != nil {
			t.Errorf("append cancelled while being written: %v", err)
		}
		<-l.writeLock
		if info := l.Info(); !info.Empty {
			t.Errorf("cancelled appends left %+v", info)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustOpen(t, "", nil)
		outcome := make(chan error, 1)
		wait := func(ctx context.Context, next int64) {
			go func() { outcome <- l.Wait(ctx, next) }()
			synctest.Wait()
		}
		pending := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-outcome:
				t.Fatalf("%s: wait ended with %v", what, err)
			default:
			}
		}
		wait(context.Background(), 1)
		mustAppend(t, l, "zero")
		pending("before event 1")
		mustAppend(t, l, "one")
		if err := <-outcome; err != nil {
			t.Errorf("wait for event 1: %v", err)
		}
		if err := l.Wait(context.Background(), 0); err != nil {
			t.Errorf("wait for what is there: %v", err)
		}
		if err := l.Trim(2); err != nil {
			t.Fatal(err)
		}
		wait(context.Background(), 0)
		pending("trimmed empty")
		mustAppend(t, l, "two")
		if err := <-outcome; err != nil {
			t.Errorf("wait from behind retention: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wait(ctx, 3)
		if err := <-outcome; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait with a deadline: %v", err)
		}
		wait(context.Background(), 3)
		mustClose(t, l)
		if err := <-outcome; !errors.Is(err, ErrClosed) {
			t.Errorf("wait on a log that is closed: %v", err)
		}
	})
}

// TestClose closes the log while appends wait, and calls all methods afterwards.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustOpen(t, "", nil)
		mustAppend(t, l, "one")
		l.writeLock <- struct{}{} // somebody writes
		outcome := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := l.Append(context.Background(), messages(string(make([]byte, maxWrite))))
				outcome <- err
			}()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		<-l.writeLock
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-outcome; !errors.Is(err, ErrClosed) {
				t.Errorf("append while the log is closed: %v", err)
			}
		}
		_, appended := l.Append(context.Background(), messages("late"))
		_, read := l.Read(0, 1, 1, nil)
		_, sought := l.SeekTime(0)
		for i, err := range []error{appended, read, sought, l.Trim(1), l.Wait(context.Background(), 0)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("operation %d on a closed log: %v", i, err)
			}
		}
		mustClose(t, l)
	})
}

// TestGroupCommit appends during a write: these appends share the next write.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMachine(nil)
		syncs := 0
		store.fault = func(op string) error {
			if op == "sync" {
				syncs++
			}
			return nil
		}
		l := openMachine(t, store)
		defer mustClose(t, l)
		l.writeLock <- struct{}{} // somebody writes
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { mustAppend(t, l, fmt.Sprintf("event %d", i)) })
		}
		synctest.Wait()
		syncs = 0
		<-l.writeLock
		wg.Wait()
		if syncs != 1 || l.Info().Last != 19 {
			t.Errorf("%d appends took %d syncs, want 1", l.Info().Last+1, syncs)
		}
	})
}

// TestAllocations reads a thousand events with a constant number of allocations
// per 256 KiB, and into a batch without new memory for the payloads.
func TestAllocations(t *testing.T) {
	l := mustOpen(t, "", nil)
	defer mustClose(t, l)
	for range 5 {
		if _, err := l.Append(context.Background(), benchmarkBatch(200, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]Stored, 0, 1000)
	allocs := testing.AllocsPerRun(20, func() {
		var err error
		if dst, err = l.Read(0, 1000, math.MaxInt, dst[:0]); err != nil || len(dst) != 1000 {
			t.Fatalf("read %d events: %v", len(dst), err)
		}
	})
	if allocs > 50 {
		t.Errorf("%v allocations for 1,000 events, want at most 50", allocs)
	}
	var batch Batch
	var memory *byte
	for range 3 {
		if err := l.ReadInto(&batch, 0, 1000, math.MaxInt); err != nil || len(batch.Events) != 1000 {
			t.Fatalf("read %d events: %v", len(batch.Events), err)
		}
		again := &batch.Events[0].Payload[0]
		if memory != nil && again != memory {
			t.Error("a batch was read into new memory")
		}
		memory = again
	}
}

// TestIndex reads a sealed segment with two cursors at once: the resulting index is
// in order, and its entries have the intended distance.
func TestIndex(t *testing.T) {
	l := mustOpen(t, "", &Config{SegmentBytes: 1 << 20})
	defer mustClose(t, l)
	for range 3 {
		if _, err := l.Append(context.Background(), benchmarkBatch(1000, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	s := l.segments[0]
	s.truncateIndex(0)
	var cursors [2]*cursor
	for i := range cursors {
		c, err := l.newCursor(s, l.segments[1].position, func(int64, int64, int64) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		cursors[i] = c
	}
	for _, turn := range []int{300, 200, 100, 700, 900} {
		c := cursors[turn/100%2]
		for range turn {
			if c.position == c.end {
				break
			}
			if _, _, err := c.next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := int64(0)
	for _, e := range s.index {
		if gap := int64(e.position) - before; gap < indexStep || gap > indexStep+2000 {
			t.Errorf("index entries at %d and %d", before, e.position)
		}
		before = int64(e.position)
	}
	if n := len(s.index); n < 50 {
		t.Errorf("%d index entries for 1 MB", n)
	}
}
