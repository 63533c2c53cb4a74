package eventhubs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func open(t *testing.T, dir string, opts *Options, hubs ...Config) *Broker {
	t.Helper()
	b, err := Open(dir, hubs, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, b) })
	return b
}

// Events are removed once they are older than the retention, not before, and
// sequence numbers and offsets continue.
func TestRetentionByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, "", &Options{Retention: time.Hour}, Config{Name: "h", Partitions: 2})
		p := mustPartition(t, mustHub(t, b, "h"), "1")
		mustAppend(t, p, "a", "b")
		time.Sleep(20 * time.Minute)
		mustAppend(t, p, "c")
		last := p.Info()
		for _, v := range []struct {
			wait time.Duration
			want string
		}{{39 * time.Minute, "a b c"}, {2 * time.Minute, "c"}, {18 * time.Minute, "c"}, {2 * time.Minute, ""}, {time.Hour, ""}} {
			time.Sleep(v.wait)
			synctest.Wait()
			if got := read(t, p); got != v.want {
				t.Errorf("got %q, want %q", got, v.want)
			}
		}
		info := p.Info()
		if !info.Empty || info.First != 3 || info.Last != 2 || info.LastOffset != last.LastOffset || !info.LastEnqueued.Equal(last.LastEnqueued) {
			t.Errorf("got %+v after %+v", info, last)
		}
		mustAppend(t, p, "d")
		if got := read(t, p); got != "d" {
			t.Errorf("got %q, want d", got)
		}
		if next, err := p.Seek(StartPosition{Kind: AtSequence, Sequence: 0}); next != 3 || err != nil {
			t.Errorf("a start that retention has passed: got %d, %v", next, err)
		}
	})
}

func TestRetentionBySize(t *testing.T) {
	const limit = 2 << 20
	dir := t.TempDir()
	b := open(t, dir, &Options{SegmentBytes: limit / 4}, Config{Name: "h", Partitions: 1})
	r := newRetention(b, &Options{RetentionBytes: limit})
	p := mustPartition(t, mustHub(t, b, "h"), "0")
	block := strings.Repeat("x", 10<<10)
	for range 1000 {
		mustAppend(t, p, block)
	}
	r.removeOld()
	kept := func() int64 { return p.Info().Last - p.Info().First + 1 }
	if n := kept() * (10<<10 + 40); n > limit || n < limit*8/10 {
		t.Errorf("%d bytes are kept of at most %d", n, limit)
	}
	size := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil || size > 3*limit {
		t.Errorf("%d bytes on disk for %d, %v", size, limit, err)
	}

	// A few bytes more don't cause a write.
	first := p.Info().First
	for range 10 {
		mustAppend(t, p, block)
	}
	r.removeOld()
	if p.Info().First != first {
		t.Errorf("ten events made %d others go", p.Info().First-first)
	}

	// The newest event stays, however large.
	mustAppend(t, p, strings.Repeat("y", limit))
	r.removeOld()
	if kept() != 1 {
		t.Errorf("%d events are kept, want the newest", kept())
	}
}

// Events that are too old when the broker opens are removed too.
func TestRetentionAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, dir, nil, Config{Name: "h", Partitions: 1})
		mustAppend(t, mustPartition(t, mustHub(t, b, "h"), "0"), "old")
		mustClose(t, b)
		time.Sleep(2 * time.Hour)
		b = open(t, dir, &Options{Retention: time.Hour}, Config{Name: "h", Partitions: 1})
		synctest.Wait()
		p := mustPartition(t, mustHub(t, b, "h"), "0")
		mustAppend(t, p, "new")
		if got := read(t, p); got != "new" {
			t.Errorf("got %q, want new", got)
		}
	})
}

// A failure is reported each time; a deleted hub isn't a failure.
func TestRetentionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var failures []error
		b := open(t, dir, &Options{Retention: time.Hour, OnRetentionError: func(err error) { failures = append(failures, err) }}, Config{Name: "h", Partitions: 1})
		h := mustHub(t, b, "h")
		p := mustPartition(t, h, "0")
		mustAppend(t, p, "a")
		log := filepath.Join(b.incarnationDir(h.config, h.created), "0")
		if err := os.Mkdir(filepath.Join(log, "state.next"), 0o700); err != nil { // blocks the temporary file of the state
			t.Fatal(err)
		}
		time.Sleep(time.Hour + 90*time.Second)
		synctest.Wait()
		var path *fs.PathError
		if len(failures) != 2 || !errors.As(failures[0], &path) || !strings.Contains(failures[0].Error(), "partition 0 of h") {
			t.Fatalf("got %v, want two failures of partition 0", failures)
		}
		if err := os.Remove(filepath.Join(log, "state.next")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := read(t, p); got != "" {
			t.Errorf("got %q after the failure was mended", got)
		}
		failures = nil
		if err := b.Recreate("h"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(b.retention.removedTo) != 1 || len(failures) != 0 {
			t.Errorf("after the hub was created again: %d partitions, failures %v", len(b.retention.removedTo), failures)
		}
	})
}

func TestRetentionOptions(t *testing.T) {
	for _, opts := range []Options{{Retention: -1}, {RetentionBytes: -1}, {RetentionBytes: 1<<20 - 1}} {
		if b, err := Open("", []Config{{Name: "h", Partitions: 1}}, &opts); err == nil {
			mustClose(t, b)
			t.Errorf("opened with %+v", opts)
		}
	}
	b := open(t, "", nil, Config{Name: "h", Partitions: 1})
	if b.retention != nil {
		t.Error("without limits there is something that removes events")
	}
}

// Readers and writers are not disturbed while events are removed.
func TestRetentionMeanwhile(t *testing.T) {
	b := open(t, t.TempDir(), &Options{SegmentBytes: 1 << 20}, Config{Name: "h", Partitions: 1})
	r := newRetention(b, &Options{RetentionBytes: 1 << 20})
	p := mustPartition(t, mustHub(t, b, "h"), "0")
	ctx, cancel := context.WithCancel(context.Background())
	written := make(chan error)
	go func() {
		defer cancel()
		for range 200 {
			if _, err := p.Append(context.Background(), []Message{{Payload: make([]byte, 50<<10)}}); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		for ctx.Err() == nil {
			r.removeOld()
		}
	}()
	next := int64(0)
	for {
		events, err := p.Read(next, 100, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Sequence < next {
				t.Fatalf("event %d after %d", e.Sequence, next)
			}
			next = e.Sequence + 1
		}
		if ctx.Err() != nil && next > p.Info().Last {
			break
		}
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	<-removed
	if next != 200 {
		t.Errorf("read up to %d of 200", next)
	}
}
