package eventhubs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/disklog"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

func mustOpen(t *testing.T, dir string, hubs ...Config) *Broker {
	t.Helper()
	b, err := Open(dir, hubs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, b) })
	return b
}

func mustClose(t *testing.T, b *Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustHub(t *testing.T, b *Broker, name string) *Hub {
	t.Helper()
	h, ok := b.Hub(name)
	if !ok {
		t.Fatalf("no hub %s", name)
	}
	return h
}

func mustPartition(t *testing.T, h *Hub, id string) *Partition {
	t.Helper()
	p, ok := h.Partition(id)
	if !ok {
		t.Fatalf("no partition %s of %s", id, h.Name())
	}
	return p
}

func mustAppend(t *testing.T, p *Partition, payloads ...string) {
	t.Helper()
	var msgs []Message
	for _, text := range payloads {
		msgs = append(msgs, Message{Payload: []byte(text)})
	}
	if _, err := p.Append(context.Background(), msgs); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, p *Partition) string {
	t.Helper()
	events, err := p.Read(0, 1000, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	var batch Batch
	if err := p.ReadInto(&batch, 0, 1000, 1<<20); err != nil || len(batch.Events) != len(events) {
		t.Fatalf("read %d events into a batch, %v, want %d", len(batch.Events), err, len(events))
	}
	var texts []string
	for _, e := range batch.Events {
		texts = append(texts, string(e.Payload))
	}
	return strings.Join(texts, " ")
}

func TestLookUp(t *testing.T) {
	b := mustOpen(t, "", Config{Name: "Flights", Partitions: 11}, Config{Name: "x", Partitions: 1})
	h := mustHub(t, b, "fLIGHTS")
	if h.Name() != "Flights" {
		t.Errorf("name %q, want it as configured", h.Name())
	}
	if _, ok := b.Hub("other"); ok {
		t.Error("found a hub that is not there")
	}
	hubs := b.Hubs()
	if len(hubs) != 2 || hubs[0] != h || hubs[1].Name() != "x" {
		t.Errorf("hubs: %v", hubs)
	}
	ids := h.PartitionIDs()
	if !slices.Equal(ids, strings.Fields("0 1 2 3 4 5 6 7 8 9 10")) {
		t.Errorf("partition ids %v", ids)
	}
	for _, id := range ids {
		if p := mustPartition(t, h, id); p.ID() != id {
			t.Errorf("partition %s has id %s", id, p.ID())
		}
	}
	for _, id := range []string{"", "-1", "11", "01", "+1", "one", "99999999999999999999"} {
		if _, ok := h.Partition(id); ok {
			t.Errorf("found partition %q", id)
		}
	}
}

func TestPick(t *testing.T) {
	h := mustHub(t, mustOpen(t, "", Config{Name: "h", Partitions: 5}), "h")
	for i := range 12 {
		if got := h.Pick("").ID(); got != h.PartitionIDs()[i%5] {
			t.Errorf("pick %d without a key: partition %s", i, got)
		}
	}
	for i := range 100 {
		key := fmt.Sprintf("flight %d", i)
		if got, want := h.Pick(key), h.partitions[partitionkey.EventHubsPartition(key, 5)]; got != want {
			t.Errorf("pick %q: partition %s, want %s", key, got.ID(), want.ID())
		}
	}
}

func TestConsumerGroups(t *testing.T) {
	b := mustOpen(t, "", Config{Name: "any", Partitions: 1}, Config{Name: "some", Partitions: 1, ConsumerGroups: []string{"Audit"}})
	for _, c := range []struct {
		hub, group string
		want       bool
	}{
		{"any", "$Default", true}, {"any", "whatever", true}, {"any", "", false},
		{"some", "$default", true}, {"some", "audit", true}, {"some", "whatever", false}, {"some", "", false},
	} {
		h := mustHub(t, b, c.hub)
		if got := h.HasGroup(c.group); got != c.want {
			t.Errorf("hub %s has group %q: %v", c.hub, c.group, got)
		}
		_, err := mustPartition(t, h, "0").Attach(c.group, "", nil, nil)
		if got := err == nil; got != c.want || err != nil && !errors.Is(err, ErrUnknownGroup) {
			t.Errorf("attach to hub %s, group %q: %v", c.hub, c.group, err)
		}
	}
}

func TestBadConfig(t *testing.T) {
	ok := Config{Name: "ok", Partitions: 1}
	for _, hubs := range [][]Config{
		{{Name: "h", Partitions: 0}},
		{{Name: "h", Partitions: 1025}},
		{{Name: "", Partitions: 1}},
		{{Name: "../h", Partitions: 1}},
		{{Name: ".h", Partitions: 1}},
		{{Name: "h.", Partitions: 1}},
		{{Name: "h/h", Partitions: 1}},
		{{Name: "h h", Partitions: 1}},
		{{Name: "hé", Partitions: 1}},
		{{Name: strings.Repeat("h", 257), Partitions: 1}},
		{{Name: "h", Partitions: 1, ConsumerGroups: []string{""}}},
		{ok, {Name: "OK", Partitions: 1}},
	} {
		for _, dir := range []string{"", t.TempDir()} {
			if b, err := Open(dir, hubs, nil); err == nil {
				mustClose(t, b)
				t.Errorf("opened %+v", hubs)
			}
			mustClose(t, mustOpen(t, dir, ok)) // nothing stays locked
		}
	}
}

func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	b := mustOpen(t, dir, Config{Name: "Flights", Partitions: 2})
	h := mustHub(t, b, "flights")
	created := h.Created()
	if created.Nanosecond()%1e6 != 0 || created.Location() != time.UTC || time.Since(created) > time.Minute {
		t.Errorf("created at %v", created)
	}
	mustAppend(t, mustPartition(t, h, "0"), "one", "two")
	mustAppend(t, mustPartition(t, h, "1"), "three")
	if _, err := Open(dir, nil, nil); !errors.Is(err, disklog.ErrLocked) {
		t.Errorf("open twice: %v, want ErrLocked", err)
	}
	mustClose(t, b)

	b = mustOpen(t, dir, Config{Name: "flights", Partitions: 4}, Config{Name: "new", Partitions: 1})
	h = mustHub(t, b, "flights")
	if !h.Created().Equal(created) {
		t.Errorf("created at %v after a restart, want %v", h.Created(), created)
	}
	for id, want := range map[string]string{"0": "one two", "1": "three", "2": "", "3": ""} {
		if got := read(t, mustPartition(t, h, id)); got != want {
			t.Errorf("partition %s: %q, want %q", id, got, want)
		}
	}
	mustAppend(t, mustPartition(t, h, "3"), "four")
	mustClose(t, b)

	_, err := Open(dir, []Config{{Name: "flights", Partitions: 3}}, nil)
	var shrink *ShrinkError
	if !errors.As(err, &shrink) || shrink.Has != 4 || shrink.Want != 3 {
		t.Errorf("open with fewer partitions: %v, want a ShrinkError from 4 to 3", err)
	}
	b = mustOpen(t, dir, Config{Name: "flights", Partitions: 4})
	if got := read(t, mustPartition(t, mustHub(t, b, "flights"), "3")); got != "four" {
		t.Errorf("partition 3: %q", got)
	}
}

func TestRecreate(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 6e6+7, time.UTC) // stopped clock
		opts := &Options{Now: func() time.Time { return now }}
		configs := []Config{{Name: "h", Partitions: 2}}
		b, err := Open(dir, configs, opts)
		if err != nil {
			t.Fatal(err)
		}
		old := mustHub(t, b, "h")
		p := mustPartition(t, old, "1")
		mustAppend(t, p, "one")
		waited := make(chan error)
		go func() { waited <- p.Wait(context.Background(), 1) }()

		if err := b.Recreate("other"); !errors.Is(err, ErrUnknownHub) {
			t.Errorf("recreate a hub that is not there: %v", err)
		}
		if err := b.Recreate("H"); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; !errors.Is(err, ErrDeleted) {
			t.Errorf("wait on the old hub: %v, want ErrDeleted", err)
		}
		_, appended := p.Append(context.Background(), []Message{{}})
		_, readErr := p.Read(0, 1, 1, nil)
		_, sought := p.Seek(StartPosition{Kind: AtTime})
		readInto := p.ReadInto(new(Batch), 0, 1, 1)
		_, attached := p.Attach(DefaultGroup, "", nil, nil)
		for i, err := range []error{appended, readErr, readInto, sought, attached, p.Trim(1)} {
			if !errors.Is(err, ErrDeleted) {
				t.Errorf("operation %d on the old hub: %v, want ErrDeleted", i, err)
			}
		}
		for range 2 {
			h := mustHub(t, b, "h")
			if want := old.Created().Add(time.Millisecond); !h.Created().Equal(want) {
				t.Errorf("created at %v, want %v", h.Created(), want)
			}
			if info := mustPartition(t, h, "1").Info(); !info.Empty || info.First != 0 || info.Last != -1 || info.LastOffset != "-1" {
				t.Errorf("partition of the new hub: %+v", info)
			}
			if dir == "" {
				break
			}
			entries, err := os.ReadDir(filepath.Join(dir, "h"))
			if err != nil || len(entries) != 2 {
				t.Errorf("%v, %v: want the description and one incarnation", entries, err)
			}
			mustClose(t, b)
			if b, err = Open(dir, configs, opts); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, b)
		if err := b.Recreate("h"); !errors.Is(err, ErrClosed) {
			t.Errorf("recreate in a closed broker: %v", err)
		}
	}
}

// TestInterruptedRecreate opens a hub with incarnations that hub.json doesn't name, as
// when the machine failed before or after hub.json was replaced.
func TestInterruptedRecreate(t *testing.T) {
	dir := t.TempDir()
	b := mustOpen(t, dir, Config{Name: "h", Partitions: 1})
	h := mustHub(t, b, "h")
	mustAppend(t, mustPartition(t, h, "0"), "one")
	left := filepath.Join(dir, "h", "12345", "0")
	kept := filepath.Join(dir, "h", "notes")
	mustClose(t, b)
	if err := errors.Join(os.MkdirAll(left, 0o777), os.MkdirAll(kept, 0o777)); err != nil {
		t.Fatal(err)
	}
	b = mustOpen(t, dir, Config{Name: "h", Partitions: 1})
	if got := read(t, mustPartition(t, mustHub(t, b, "h"), "0")); got != "one" {
		t.Errorf("read %q", got)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other incarnation is still there: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a directory that is none of ours: %v", err)
	}
}

func TestDamagedDescription(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"created":"2026-01-01T00:00:00Z","partitions":-1}`, `{"created":"yesterday","partitions":1}`} {
		dir := t.TempDir()
		mustClose(t, mustOpen(t, dir, Config{Name: "h", Partitions: 1}))
		path := filepath.Join(dir, "h", descriptionFile)
		var d description
		if good, err := os.ReadFile(path); err != nil || json.Unmarshal(good, &d) != nil || d.Partitions != 1 {
			t.Fatalf("description: %s, %v", good, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, []Config{{Name: "h", Partitions: 1}}, nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("description %q: %v, want an error that names the file", text, err)
		}
	}
}

func TestClose(t *testing.T) {
	b := mustOpen(t, "", Config{Name: "h", Partitions: 1})
	p := mustPartition(t, mustHub(t, b, "h"), "0")
	waited := make(chan error)
	go func() { waited <- p.Wait(context.Background(), 0) }()
	mustClose(t, b)
	if err := <-waited; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "partition 0 of h") {
		t.Errorf("wait: %v, want ErrClosed that names the partition", err)
	}
	if _, err := p.Append(context.Background(), []Message{{}}); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	mustClose(t, b)
}
