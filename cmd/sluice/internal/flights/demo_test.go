package flights

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"

	"github.com/sluice-go/sluice/pipeline"
)

func open(t *testing.T, dir string) *Demo {
	t.Helper()
	d, err := OpenDemo(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(context.Background()) })
	return d
}

func TestEveryRecordHasOnePlace(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 3, 4, 5, 1000, 20_001} {
		seen := make([]bool, n)
		for p := range Partitions {
			for s := range share(p, n) {
				i := recordAt(p, s)
				if i >= n || seen[i] {
					t.Fatalf("of %d: record %d, at %d of partition %d, has no place or two", n, i, s, p)
				}
				seen[i] = true
			}
		}
		for i, ok := range seen {
			if !ok {
				t.Fatalf("of %d: record %d has no place", n, i)
			}
		}
	}
}

func TestSpoiledRecordsLackTheirDelay(t *testing.T) {
	f, err := UnpackRecords()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.bodies) != 20_000 {
		t.Fatalf("%d records", len(f.bodies))
	}
	in := map[int64]int{}
	for i := range int64(40_000) {
		body, err := f.Body(i)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), `"delay"`) == lacksDelay(i) {
			t.Fatalf("record %d is %s", i, body)
		}
		if lacksDelay(i) {
			in[i%Partitions]++
		}
	}
	if len(in) != Partitions {
		t.Errorf("spoiled records by partition: %v", in)
	}
}

// TestConnectionsAreCutWhileProducing: the producer can't tell whether a batch
// has arrived, and must neither lose nor repeat it.
func TestConnectionsAreCutWhileProducing(t *testing.T) {
	need.RealTime(t)
	const n = 60_000
	d := open(t, t.TempDir())
	done := make(chan error, 1)
	go func() { done <- d.ProduceAll(t.Context(), n) }()
	cuts := 0
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for producing := true; producing; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			producing = false
		case <-tick.C:
			if cuts < 4 {
				cuts++
				d.Hub.DropConnections()
			}
		}
	}
	t.Logf("%d cuts", cuts)
	for p := range Partitions {
		r, err := d.Source.Open(t.Context(), strconv.Itoa(p), driver.Origin, 1)
		if err != nil {
			t.Fatal(err)
		}
		for s := int64(0); s < share(p, n); {
			events, err := r.Read(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				want, err := d.records.Body(recordAt(p, e.Sequence))
				if err != nil {
					t.Fatal(err)
				}
				if string(e.Body) != string(want) {
					t.Fatalf("event %d of partition %d is %s, not %s", e.Sequence, p, e.Body, want)
				}
			}
			s += int64(len(events))
		}
		b, err := d.Source.Bounds(t.Context(), strconv.Itoa(p))
		if err != nil || b.Last.Sequence != share(p, n)-1 {
			t.Errorf("partition %d ends at %v, %v", p, b.Last, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneDemoAtATime(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if second, err := OpenDemo(t.Context(), dir, slog.New(slog.DiscardHandler)); err == nil {
		second.Close(t.Context())
		t.Error("a second demo has the same directory")
	}
}

func TestOddDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a "b" ${HOME} #c: d`)
	d := open(t, dir)
	for _, path := range []string{d.files.strict, d.files.fixed} {
		if _, err := pipeline.Load(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "flights.db")); err != nil {
		t.Error(err)
	}
}
