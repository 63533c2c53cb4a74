package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/feed"
	"github.com/sluice-go/sluice/internal/records"
)

const partitions = 4

// bench is a hub, a client that sends to it, and a source that reads it.
type bench struct {
	srv    *emulator.Server
	client *azeventhubs.ProducerClient
	source *eventhub.Source
	topic  sluice.Topic
}

func newBench(t testing.TB) *bench {
	t.Helper()
	srv, err := emulator.Start([]emulator.Hub{{Name: "h", Partitions: partitions}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	client, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "h", &azeventhubs.ProducerClientOptions{
		RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	source, err := eventhub.New(srv.ConnectionString(), "h", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close(context.Background()) })
	topic, err := source.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{srv, client, source, topic}
}

func (b *bench) feed(t testing.TB, cfg *feed.Config) *feed.Feed {
	t.Helper()
	f, err := feed.New(b.client, b.topic.Partitions, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// read returns the events of all partitions.
func (b *bench) read(t testing.TB) map[string][]*sluice.Event {
	t.Helper()
	all := map[string][]*sluice.Event{}
	for _, p := range b.topic.Partitions {
		bounds, err := b.source.Bounds(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.source.Open(t.Context(), p, sluice.Origin, 1)
		if err != nil {
			t.Fatal(err)
		}
		for int64(len(all[p])) <= bounds.Last.Sequence {
			events, err := r.Read(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			all[p] = append(all[p], events...)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// numbered writes n records with their number and one of so many keys.
func numbered(n, keys int) *records.Reader {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d,\"key\":\"k%d\",\"pad\":%q}\n", i, i%keys, strings.Repeat("x", i%200))
	}
	return records.NewReader(strings.NewReader(b.String()), "in")
}

func number(t testing.TB, e *sluice.Event) (n int, key string) {
	t.Helper()
	var v struct {
		N   int
		Key string
	}
	if err := json.Unmarshal(e.Body, &v); err != nil {
		t.Fatal(err)
	}
	return v.N, v.Key
}

func TestOrderIsKeptPerKey(t *testing.T) {
	const n, keys = 50_000, 99
	b := newBench(t)
	f := b.feed(t, &feed.Config{KeyField: "key", Window: 250})
	if err := f.Send(t.Context(), numbered(n, keys)); err != nil {
		t.Fatal(err)
	}
	if f.Acknowledged() != n {
		t.Errorf("%d acknowledged", f.Acknowledged())
	}
	total, used := 0, 0
	next := map[string]int{}
	home := map[string]string{}
	for p, events := range b.read(t) {
		total += len(events)
		if len(events) > 0 {
			used++
		}
		for _, e := range events {
			i, key := number(t, e)
			if e.Key != key || e.ContentType != "application/json" {
				t.Fatalf("record %d has key %q, content type %q", i, e.Key, e.ContentType)
			}
			if home[key] == "" {
				home[key], next[key] = p, i%keys
			}
			if home[key] != p || next[key] != i {
				t.Fatalf("key %s: record %d in partition %s, expected %d in %s", key, i, p, next[key], home[key])
			}
			next[key] += keys
		}
	}
	if total != n || used < 2 {
		t.Errorf("%d events in %d partitions", total, used)
	}
}

func TestWithoutKeysPartitionsAreFilledInTurn(t *testing.T) {
	const n = 50_000
	b := newBench(t)
	f := b.feed(t, &feed.Config{Window: 249})
	if err := f.Send(t.Context(), numbered(n, 1)); err != nil {
		t.Fatal(err)
	}
	for p, events := range b.read(t) {
		if len(events) != n/partitions {
			t.Fatalf("partition %s has %d events", p, len(events))
		}
		first, _ := number(t, events[0])
		for i, e := range events {
			if got, _ := number(t, e); got != first+i*partitions || e.Key != "" {
				t.Fatalf("partition %s: event %d is record %d with key %q", p, i, got, e.Key)
			}
		}
	}
}

func TestTooLargeRecordsAreNamedAndTheOthersSent(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	var refused []string
	f := b.feed(t, &feed.Config{KeyField: "key", Refused: func(e *records.TooLargeError) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, e.Place.String())
	}})
	large := fmt.Sprintf(`{"n":1,"key":"a","pad":%q}`, strings.Repeat("x", 2<<20))
	huge := fmt.Sprintf(`{"n":2,"key":"a","pad":%q}`, strings.Repeat("x", records.MaxSize))
	in := `{"n":0,"key":"a"}` + "\n" + large + "\n" + huge + "\n" + `{"n":3,"key":"a"}` + "\n"
	if err := f.Send(t.Context(), records.NewReader(strings.NewReader(in), "in")); err != nil {
		t.Fatal(err)
	}
	if f.Acknowledged() != 2 || f.Refused() != 2 || len(refused) != 2 {
		t.Errorf("%d acknowledged, %d refused: %v", f.Acknowledged(), f.Refused(), refused)
	}
	if got := strings.Join(refused, " "); !strings.Contains(got, "in: line 2") || !strings.Contains(got, "in: line 3") {
		t.Errorf("named %s", got)
	}
}

func TestRate(t *testing.T) {
	b := newBench(t)
	began := time.Now()
	if err := b.feed(t, &feed.Config{Rate: 1000}).Send(t.Context(), numbered(500, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 490*time.Millisecond || took > 5*time.Second {
		t.Errorf("500 records at 1,000 a second took %v", took)
	}
}

func TestARecordDoesNotWaitForTheNext(t *testing.T) {
	b := newBench(t)
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := b.feed(t, nil)
	done := make(chan error, 1)
	go func() { done <- f.Send(ctx, records.NewReader(in, "in")) }()
	io.WriteString(out, `{"n":0,"key":"a"}`+"\n")
	await(t, done, func() bool { return f.Acknowledged() == 1 })
	gone := errors.New("caller is gone")
	cancel(gone)
	if err := <-done; err != gone {
		t.Errorf("got %v", err)
	}
}

// await waits for a condition that must come true before the sending ends.
func await(t *testing.T, done <-chan error, ok func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	limit := time.After(10 * time.Second)
	for !ok() {
		select {
		case err := <-done:
			t.Fatalf("ended with %v", err)
		case <-limit:
			t.Fatal("not within 10 s")
		case <-look.C:
		}
	}
}

func TestMissingKeysAreNamed(t *testing.T) {
	b := newBench(t)
	for in, want := range map[string]string{
		"{\"key\":\"a\"}\n{\"k\":1}\n": "in: line 2: the key's field key is missing",
		"{\"key\":null}\n":             "in: line 1: the key's field key is missing",
		"{\"key\":\"\"}\n":             "in: line 1: the key's field key is empty",
		"{\"key\":[1]}\n":              "in: line 1: the key's field key is neither text nor number",
		"[7]":                          "in: record 1: the key's field key: not an object",
		fmt.Sprintf("{\"key\":%q}\n", strings.Repeat("x", 129)):              "in: line 1: the key's field key has 129 characters",
		"{\"key\":1}\n{\"key\":true}\n{\"key\":\"\\u00e4\"}\n{\"key\":\"a\"": "in: line 4: not JSON",
	} {
		f := b.feed(t, &feed.Config{KeyField: "key"})
		if err := f.Send(t.Context(), records.NewReader(strings.NewReader(in), "in")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
	keys := map[string]int{}
	for _, events := range b.read(t) {
		for _, e := range events {
			keys[e.Key]++
		}
	}
	// What stands before the record that can't be sent is sent.
	if keys["1"] != 1 || keys["true"] != 1 || keys["ä"] != 1 || keys["a"] != 1 || len(keys) != 4 {
		t.Errorf("sent %v", keys)
	}
}

func TestWhatWasAcknowledgedIsThere(t *testing.T) {
	b := newBench(t)
	f := b.feed(t, &feed.Config{KeyField: "key"})
	done := make(chan error, 1)
	go func() { done <- f.Send(t.Context(), numbered(200_000, 1000)) }()
	await(t, done, func() bool { return f.Acknowledged() >= 1000 })
	b.srv.DropConnections()
	if err := <-done; err == nil {
		t.Fatal("no error though the connection was cut")
	}
	total := int64(0)
	for _, events := range b.read(t) {
		total += int64(len(events))
	}
	if acked := f.Acknowledged(); total < acked || total == 200_000 {
		t.Errorf("%d acknowledged, %d are there", acked, total)
	}
}

func BenchmarkSend(b *testing.B) {
	const n = 200_000
	bench := newBench(b)
	for _, field := range []string{"", "key"} {
		b.Run("key="+field, func(b *testing.B) {
			for b.Loop() {
				if err := bench.feed(b, &feed.Config{KeyField: field}).Send(b.Context(), numbered(n, 300)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
