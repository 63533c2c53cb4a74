package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/feed"
)

// document is what a reader finds.
type document struct{ ID, Key, Payload string }

func TestDocuments(t *testing.T) {
	docs, err := feed.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int64{}
	for _, n := range []int64{0, 1, 9, 10, 69_999, 70_000, 139_999, 999_999_999, 1e10 - 1, 1e10, 99_999_999_999} {
		body := docs.Append(nil, n)
		var d document
		if err := json.Unmarshal(body, &d); err != nil {
			t.Fatalf("%d: %v in %s", n, err, body)
		}
		if want := fmt.Sprintf("doc-%010d", n); d.ID != want || docs.ID(n) != want {
			t.Errorf("document %d has id %s, and %s by number", n, d.ID, docs.ID(n))
		}
		if again, ok := docs.Number(d.ID); !ok || again != n {
			t.Errorf("document %s has number %d, %v", d.ID, again, ok)
		}
		if want := fmt.Sprintf("key-%d", n%70_000); d.Key != want || docs.Key(n) != want {
			t.Errorf("document %d has key %s, and %s by number", n, d.Key, docs.Key(n))
		}
		if len(body) != 1000 || len(d.Payload) < 900 {
			t.Errorf("document %d has %d bytes", n, len(body))
		}
		if other, ok := seen[d.Payload]; ok {
			t.Errorf("documents %d and %d have the same payload", n, other)
		}
		seen[d.Payload] = n
		if again := docs.Append(nil, n); string(again) != string(body) {
			t.Errorf("document %d is not the same again", n)
		}
	}
}

func TestIDsOfNoDocument(t *testing.T) {
	docs, err := feed.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "doc-", "doc-1", "doc-00000000001", "doc--000000001", "doc-+000000001", "Doc-0000000001", "doc-000000000x", "doc-100000000000", "doc-99999999999999999999"} {
		if n, ok := docs.Number(id); ok {
			t.Errorf("id %q is document %d's", id, n)
		}
	}
}

func TestSizesOfDocuments(t *testing.T) {
	for _, size := range []int{63, 64, 65, 1 << 16, 200_001} {
		docs, err := feed.NewDocuments(&feed.DocumentsConfig{Prefix: "a", Keys: 1000, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{0, 7, 12_345_678} {
			if body := docs.Append([]byte("before"), n); len(body) != len("before")+size || !json.Valid(body[len("before"):]) {
				t.Errorf("document %d of %d bytes has %d", n, size, len(body))
			}
		}
	}
	for want, cfg := range map[string]*feed.DocumentsConfig{
		"prefix":                   {Prefix: "a/b"},
		"at most 100 letters":      {Prefix: strings.Repeat("a", 101)},
		"-1 keys":                  {Keys: -1},
		"must be 1 to 1000000":     {Keys: 1_000_001},
		"documents of 40 bytes":    {Size: 40},
		"documents of -1 bytes":    {Size: -1},
		"documents of 1000001 byt": {Size: 1_000_001},
	} {
		if _, err := feed.NewDocuments(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", cfg, err, want)
		}
	}
}

func (b *bench) clients(t testing.TB, n int) []*azeventhubs.ProducerClient {
	t.Helper()
	list := make([]*azeventhubs.ProducerClient, n)
	for i := range list {
		c, err := azeventhubs.NewProducerClientFromConnectionString(b.srv.ConnectionString(), "h", &azeventhubs.ProducerClientOptions{
			RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		list[i] = c
	}
	return list
}

func (b *bench) load(t testing.TB, replicas int, docs *feed.DocumentsConfig, count int64, cfg *feed.LoadConfig) *feed.Load {
	t.Helper()
	d, err := feed.NewDocuments(docs)
	if err != nil {
		t.Fatal(err)
	}
	l, err := feed.NewLoad(b.clients(t, replicas), b.topic.Partitions, d, count, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// audit checks that the events are the first n documents, each once, those of a
// key in one partition and in order.
func audit(t testing.TB, all map[string][]*sluice.Event, docs *feed.Documents, n int64) {
	t.Helper()
	seen := make([]bool, n)
	last := map[string]int64{}
	home := map[string]string{}
	for p, events := range all {
		for _, e := range events {
			var d document
			var i int64
			if err := json.Unmarshal(e.Body, &d); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(d.ID, "doc-%d", &i); err != nil || i >= n || seen[i] {
				t.Fatalf("document %s was not to be sent, or is there already", d.ID)
			}
			seen[i] = true
			if string(e.Body) != string(docs.Append(nil, i)) {
				t.Fatalf("document %d is %s", i, e.Body)
			}
			if e.Key != d.Key || e.MessageID != d.ID || e.ContentType != "application/json" {
				t.Fatalf("event of document %d with key %q, message %q, content type %q", i, e.Key, e.MessageID, e.ContentType)
			}
			if h, ok := home[e.Key]; ok && (h != p || last[e.Key] > i) {
				t.Fatalf("document %d in partition %s comes behind %d in %s", i, p, last[e.Key], h)
			}
			home[e.Key], last[e.Key] = p, i
		}
	}
	for i, ok := range seen {
		if !ok {
			t.Fatalf("document %d is missing", i)
		}
	}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		replicas, batch int
		keys, count     int64
	}{{1, 0, 0, 20_000}, {3, 77, 100, 20_003}, {5, 1, 7, 300}, {2, 10_000, 3, 9000}, {4, 10, 70_000, 3}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newBench(t)
			cfg := &feed.DocumentsConfig{Keys: c.keys}
			l := b.load(t, c.replicas, cfg, c.count, &feed.LoadConfig{Batch: c.batch})
			if err := l.Send(t.Context()); err != nil {
				t.Fatal(err)
			}
			if l.Acknowledged() != c.count {
				t.Errorf("%d acknowledged", l.Acknowledged())
			}
			docs, err := feed.NewDocuments(cfg)
			if err != nil {
				t.Fatal(err)
			}
			audit(t, b.read(t), docs, c.count)
		})
	}
}

func TestLoadRate(t *testing.T) {
	const n = 1000
	b := newBench(t)
	docs, err := feed.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := b.load(t, 2, nil, n, &feed.LoadConfig{Rate: 2000}).Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 490*time.Millisecond {
		t.Errorf("1,000 documents at 2,000 a second took %v", took)
	}
	audit(t, b.read(t), docs, n)
}

// TestADocumentDoesNotWaitForAFullBatch: at this rate a batch is full after
// 40 s, and the first document there long before.
func TestADocumentDoesNotWaitForAFullBatch(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := b.load(t, 2, nil, 1_000_000, &feed.LoadConfig{Rate: 100})
	done := make(chan error, 1)
	go func() { done <- l.Send(ctx) }()
	await(t, done, func() bool { return l.Acknowledged() > 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoadThatIsCancelled(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	l := b.load(t, 2, nil, 1_000_000, &feed.LoadConfig{Rate: 20_000})
	done := make(chan error, 1)
	go func() { done <- l.Send(ctx) }()
	await(t, done, func() bool { return l.Acknowledged() > 1000 })
	gone := errors.New("caller is gone")
	cancel(gone)
	if err := <-done; err != gone {
		t.Errorf("got %v", err)
	}
	if there, acked := b.total(t), l.Acknowledged(); there != acked {
		t.Errorf("%d acknowledged, %d are there", acked, there)
	}
}

func TestLoadWhoseConnectionsAreCut(t *testing.T) {
	b := newBench(t)
	l := b.load(t, 2, nil, 1_000_000, nil)
	done := make(chan error, 1)
	go func() { done <- l.Send(t.Context()) }()
	await(t, done, func() bool { return l.Acknowledged() > 1000 })
	b.srv.DropConnections()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "to partition ") {
		t.Errorf("got %v", err)
	}
	if there, acked := b.total(t), l.Acknowledged(); there < acked || there == 1_000_000 {
		t.Errorf("%d acknowledged, %d are there", acked, there)
	}
}

func TestDocumentsThatNoBatchHolds(t *testing.T) {
	srv := newBench(t)
	l := srv.load(t, 1, &feed.DocumentsConfig{Size: 300_000}, 20, nil)
	if err := l.Send(t.Context()); err != nil || l.Acknowledged() != 20 {
		t.Errorf("%d of 20 documents, several to a batch at most: %v", l.Acknowledged(), err)
	}
}

func TestLoadsThatMakeNoSense(t *testing.T) {
	b := newBench(t)
	docs, err := feed.NewDocuments(nil)
	if err != nil {
		t.Fatal(err)
	}
	clients := b.clients(t, 1)
	for _, c := range []struct {
		clients []*azeventhubs.ProducerClient
		count   int64
		cfg     feed.LoadConfig
	}{{nil, 1, feed.LoadConfig{}}, {clients, 0, feed.LoadConfig{}}, {clients, 1e12, feed.LoadConfig{}},
		{clients, 1, feed.LoadConfig{Batch: -1}}, {clients, 1, feed.LoadConfig{Rate: -1}}, {clients, 1, feed.LoadConfig{Rate: 1e8}}} {
		if _, err := feed.NewLoad(c.clients, b.topic.Partitions, docs, c.count, &c.cfg); err == nil {
			t.Errorf("no error for %+v", c)
		}
	}
}

// total is how many events the hub has.
func (b *bench) total(t testing.TB) (n int64) {
	t.Helper()
	for _, events := range b.read(t) {
		n += int64(len(events))
	}
	return n
}

func BenchmarkLoad(b *testing.B) {
	const n = 500_000
	for _, replicas := range []int{1, 2, 4} {
		for _, batch := range []int{100, 500} {
			b.Run(fmt.Sprintf("replicas=%d,batch=%d", replicas, batch), func(b *testing.B) {
				bench := newBench(b)
				for b.Loop() {
					if err := bench.load(b, replicas, nil, n, &feed.LoadConfig{Batch: batch}).Send(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
