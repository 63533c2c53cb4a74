package disklog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func mustOpen(t testing.TB, dir string, c *Config) *Log {
	t.Helper()
	l, err := Open(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustAppend(t testing.TB, l *Log, payloads ...string) int64 {
	t.Helper()
	first, err := l.Append(context.Background(), messages(payloads...))
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func messages(payloads ...string) []Message {
	var msgs []Message
	for _, p := range payloads {
		msgs = append(msgs, Message{Key: "k", Payload: []byte(p)})
	}
	return msgs
}

// payloads reads everything that the log holds.
func payloads(t *testing.T, l *Log) string {
	t.Helper()
	events, err := l.Read(0, math.MaxInt, math.MaxInt, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append(all, string(e.Payload))
	}
	return strings.Join(all, " ")
}

// fixedTime is a stopped clock: all events have the same time.
func fixedTime() time.Time { return time.UnixMilli(1e12) }

// image returns the only segment file of a log after build, without what was
// allocated ahead.
func image(t testing.TB, build func(l *Log)) []byte {
	t.Helper()
	l := mustOpen(t, "", &Config{Now: fixedTime})
	defer mustClose(t, l)
	build(l)
	content := make([]byte, l.active().fileAt(l.end))
	if _, err := l.active().file.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return content
}

// reopen opens a log whose only segment file has the given content.
func reopen(t *testing.T, content []byte) (*Log, error) {
	t.Helper()
	store := newMemory()
	f, err := store.create(segmentName(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	config, err := (&Config{Now: fixedTime}).withDefaults("")
	if err != nil {
		t.Fatal(err)
	}
	return openStorage(store, config)
}

// TestTornBatch cuts the file off at every byte of its last batch: the whole
// batch is dropped, and appends continue after the previous one.
func TestTornBatch(t *testing.T) {
	var before int64
	content := image(t, func(l *Log) {
		mustAppend(t, l, "one", "two")
		before = l.active().fileAt(l.end)
		mustAppend(t, l, "three", "four", "five")
	})
	used := int64(len(content))
	for size := before; size <= used; size++ {
		for _, zeros := range []int64{0, 1000} { // allocated ahead or not
			l, err := reopen(t, append(content[:size:size], make([]byte, zeros)...))
			if err != nil {
				t.Fatalf("cut at %d of %d: %v", size, used, err)
			}
			want := "one two"
			if size == used {
				want = "one two three four five"
			}
			if got := payloads(t, l); got != want {
				t.Fatalf("cut at %d of %d: %q is left, want %q", size, used, got, want)
			}
			mustAppend(t, l, "six")
			if got := payloads(t, l); got != want+" six" {
				t.Fatalf("cut at %d of %d: %q after an append, want %q", size, used, got, want+" six")
			}
			mustClose(t, l)
		}
	}
}

// TestFlippedByte changes every byte of a file. In the last write that is a torn
// write; before it the change is damage, because a later write is whole.
func TestFlippedByte(t *testing.T) {
	var before int64
	content := image(t, func(l *Log) {
		mustAppend(t, l, "one", "two")
		before = l.active().fileAt(l.end)
		mustAppend(t, l, "three", "four")
	})
	for at := range int64(len(content)) {
		changed := append([]byte(nil), content...)
		changed[at] ^= 1 << (at % 8)
		l, err := reopen(t, changed)
		var damage *CorruptError
		switch {
		case at < before && !errors.As(err, &damage):
			t.Fatalf("byte %d changed, in what was acknowledged: %v", at, err)
		case at < before:
			continue
		case err != nil:
			t.Fatalf("byte %d changed, in the last write: %v", at, err)
		}
		if got := payloads(t, l); got != "one two" {
			t.Fatalf("byte %d changed: %q is left", at, got)
		}
		mustClose(t, l)
	}
}

// TestFlippedByteWhileOpen changes the file of an open log: the damaged event is
// an error, and those before it are still returned.
func TestFlippedByteWhileOpen(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, nil)
	defer mustClose(t, l)
	mustAppend(t, l, "one", "two")
	at := l.active().fileAt(l.end)
	mustAppend(t, l, "three")
	f, err := os.OpenFile(filepath.Join(dir, segmentName(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("T"), at+recordHeader+1); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, l); got != "one two" {
		t.Errorf("read %q, want what lies before the damage", got)
	}
	_, err = l.Read(2, 1, 100, nil)
	var damage *CorruptError
	if !errors.As(err, &damage) || damage.Offset != at {
		t.Errorf("read the damage: got %v, want a CorruptError at %d", err, at)
	}
}

// TestRemainsOfTornWrite drops a torn write of two batches, then writes one of
// the same size as the first: the second one must not come back.
func TestRemainsOfTornWrite(t *testing.T) {
	content := image(t, func(l *Log) {
		appendTogether(l, [][]Message{messages("first"), messages("ghost")})
	})
	content[segmentHeader+recordHeader+1] ^= 1
	l, err := reopen(t, content)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	if got := payloads(t, l); got != "" {
		t.Fatalf("%q is left of the torn write", got)
	}
	mustAppend(t, l, "again")
	size, err := l.active().file.size()
	if err != nil {
		t.Fatal(err)
	}
	killed := make([]byte, size)
	if _, err := l.active().file.ReadAt(killed, 0); err != nil {
		t.Fatal(err)
	}
	again, err := reopen(t, killed)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, again)
	if got := payloads(t, again); got != "again" {
		t.Errorf("read %q, want what was acknowledged", got)
	}
}

// TestCopiedRecords puts a whole segment file into an event and tears that: the
// copies of records in it must not count as a later write.
func TestCopiedRecords(t *testing.T) {
	content := image(t, func(l *Log) {
		mustAppend(t, l, "one")
		mustAppend(t, l, "two")
	})
	content = image(t, func(l *Log) {
		l.active().mark = binary.LittleEndian.Uint32(content[segmentHeader:])
		if _, err := l.active().file.WriteAt(l.active().header(), 0); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, "one")
		mustAppend(t, l, "two")
		mustAppend(t, l, string(content)+" and more")
	})
	l, err := reopen(t, content[:len(content)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	if got := payloads(t, l); got != "one two" {
		t.Errorf("read %q, want what is whole", got)
	}
}

// TestMissingFiles removes or changes one of several files of a log.
func TestMissingFiles(t *testing.T) {
	segments := func(t *testing.T, dir string) []string {
		files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
		if err != nil || len(files) < 4 {
			t.Fatalf("segments: %v, %v", files, err)
		}
		return files
	}
	truncate := func(n int64) func(string) error {
		return func(name string) error { return os.Truncate(name, n) }
	}
	for _, c := range []struct {
		name   string
		choose func(files []string) string
		damage func(name string) error
		why    string
	}{
		{"first removed", func(f []string) string { return f[0] }, os.Remove, "missing"},
		{"middle removed", func(f []string) string { return f[1] }, os.Remove, "missing"},
		{"last removed", func(f []string) string { return f[len(f)-1] }, os.Remove, "missing"},
		{"first cut", func(f []string) string { return f[0] }, truncate(100), "file is too short"},
		{"first emptied", func(f []string) string { return f[0] }, truncate(0), "header"},
		{"last emptied", func(f []string) string { return f[len(f)-1] }, truncate(0), "missing"},
		{"state spoiled", func(f []string) string { return filepath.Join(filepath.Dir(f[0]), stateFile) }, truncate(3), "state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			config := &Config{SegmentBytes: 100}
			l := mustOpen(t, dir, config)
			for i := range 20 {
				mustAppend(t, l, fmt.Sprintf("event %d", i))
			}
			mustClose(t, l)
			if err := c.damage(c.choose(segments(t, dir))); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time must not fare better
				_, err := Open(dir, config)
				var damage *CorruptError
				if !errors.As(err, &damage) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), dir) {
					t.Fatalf("got %v, want a CorruptError about %q", err, c.why)
				}
			}
		})
	}
}

// TestUnfinishedSegment leaves a new segment whose header was not written when the
// machine failed.
func TestUnfinishedSegment(t *testing.T) {
	for _, size := range []int{0, 10, segmentHeader} {
		dir := t.TempDir()
		l := mustOpen(t, dir, nil)
		mustAppend(t, l, "one", "two")
		mustClose(t, l)
		if err := os.WriteFile(filepath.Join(dir, segmentName(2)), make([]byte, size), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, stateFile+temporarySuffix), []byte("{"), 0o666); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, dir, nil)
		mustAppend(t, l, "three")
		if got := payloads(t, l); got != "one two three" {
			t.Errorf("%d bytes of a header: read %q", size, got)
		}
		mustClose(t, l)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("%d files are left, %v, want one segment and the state", len(entries), err)
		}
	}
}

// TestTornLargeBatch cuts the last event off a batch that is large enough for
// the index: nothing of it may stay there.
func TestTornLargeBatch(t *testing.T) {
	content := image(t, func(l *Log) {
		mustAppend(t, l, "one")
		if _, err := l.Append(context.Background(), benchmarkBatch(60, 1000)); err != nil {
			t.Fatal(err)
		}
	})
	l, err := reopen(t, content[:len(content)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, l)
	if got := payloads(t, l); got != "one" {
		t.Fatalf("%d bytes are left, want one event", len(got))
	}
	if _, err := l.Append(context.Background(), benchmarkBatch(90, 700)); err != nil {
		t.Fatal(err)
	}
	for q := range l.Info().Last + 1 {
		events, err := l.Read(q, 1, 0, nil)
		if err != nil || len(events) != 1 || events[0].Sequence != q {
			t.Fatalf("read event %d: %v, %v", q, events, err)
		}
	}
}
