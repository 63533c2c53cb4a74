package cosmosdb_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

// clock is a clock that only advance moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func charge(t *testing.T, a answer) float64 {
	t.Helper()
	ru, err := strconv.ParseFloat(a.header.Get("x-ms-request-charge"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return ru
}

func (w *world) upsert(t *testing.T, key, body string) answer {
	t.Helper()
	return w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, []byte(body), map[string]string{
		"x-ms-documentdb-is-upsert": "True", "x-ms-documentdb-partitionkey": `["` + key + `"]`,
	})
}

func (w *world) read(t *testing.T, id, key string) answer {
	t.Helper()
	link := docsLink + "/docs/" + id
	return w.do(t, http.DefaultClient, http.MethodGet, link, "docs", link, nil, map[string]string{"x-ms-documentdb-partitionkey": `["` + key + `"]`})
}

// The charges that the package's documentation states.
func TestCharges(t *testing.T) {
	w := serve(t, nil, docs)
	doc := func(size int) string {
		head := `{"id":"` + strconv.Itoa(size) + `","key":"a","payload":"`
		return head + strings.Repeat("x", size-len(head)-2) + `"}`
	}
	for size, want := range map[int][3]float64{ // create, replace, read
		1024:       {6.28, 10.28, 1},
		200:        {6.28, 10.28, 1},
		100 * 1024: {4.95*10 + 1.33, 9.9*10 + .38, 10},
	} {
		if got := charge(t, w.upsert(t, "a", doc(size))); math.Abs(got-want[0]) > .01 {
			t.Errorf("%d bytes: created for %v RU, want %v", size, got, want[0])
		}
		if got := charge(t, w.upsert(t, "a", doc(size))); math.Abs(got-want[1]) > .01 {
			t.Errorf("%d bytes: replaced for %v RU, want %v", size, got, want[1])
		}
		if got := charge(t, w.read(t, strconv.Itoa(size), "a")); math.Abs(got-want[2]) > .01 {
			t.Errorf("%d bytes: read for %v RU, want %v", size, got, want[2])
		}
	}
	if a := w.read(t, "none", "a"); a.status != http.StatusNotFound || charge(t, a) != 1 {
		t.Errorf("status %d", a.status)
	}
}

// A physical partition admits its share of the throughput, and not that of others: over
// any time, that much plus the RU of one second, give or take one operation.
func TestThrottling(t *testing.T) {
	at := &clock{now: time.Now()}
	small := docs
	small.Throughput, small.Partitions = 1000, 2
	w := serve(t, &cosmosdb.Config{Now: at.Now}, small)
	ranges, _ := w.ranges(t, nil)
	key, other := keysOf(t, ranges[0], 1)[0], keysOf(t, ranges[1], 1)[0]
	n, spent := 0, 0.0
	write := func() answer {
		n++
		a := w.upsert(t, key, fmt.Sprintf(`{"id":"%d","key":"%s"}`, n, key))
		if a.status == http.StatusCreated {
			spent += charge(t, a)
		}
		return a
	}
	drain := func() answer {
		for {
			if a := write(); a.status != http.StatusCreated {
				return a
			}
		}
	}
	a := drain()
	if a.status != http.StatusTooManyRequests || a.substatus() != "3200" || charge(t, a) <= 0 || spent < 500 || spent > 507 {
		t.Fatalf("status %d/%s after %v RU: %s", a.status, a.substatus(), spent, a.body)
	}
	if ms, err := strconv.Atoi(a.header.Get("x-ms-retry-after-ms")); err != nil || ms < 100 || ms > 120 {
		t.Errorf("retry after %d ms, %v", ms, err)
	}
	if a := w.upsert(t, other, fmt.Sprintf(`{"id":"1","key":"%s"}`, other)); a.status != http.StatusCreated {
		t.Errorf("the other partition: %d", a.status)
	}
	for range 20 {
		at.advance(100 * time.Millisecond)
		drain()
	}
	if spent < 500+2*500 || spent > 500+2*500+7 {
		t.Errorf("%v RU in 2 s", spent)
	}
	// A batch: the admitted operations are executed, the others are throttled, each
	// with a longer wait than the one before.
	at.advance(100 * time.Millisecond)
	var ops []string
	for i := range 20 {
		ops = append(ops, upsert(fmt.Sprint("b", i), key, ""))
	}
	list := results(t, w.bulk(t, ranges[0].ID, []byte("["+strings.Join(ops, ",")+"]"), nil))
	last := 0
	for i, r := range list {
		switch {
		case i < 7 && r.StatusCode != 201, i > 9 && r.StatusCode != 429, r.StatusCode == 429 && (r.SubStatusCode != 3200 || r.RetryAfterMilliseconds <= last || r.RequestCharge <= 0):
			t.Errorf("operation %d: %+v", i, r)
		}
		last = max(last, r.RetryAfterMilliseconds)
	}
	if a := w.bulk(t, ranges[0].ID, []byte("["+ops[0]+"]"), nil); a.status != http.StatusTooManyRequests || a.substatus() != "3200" {
		t.Errorf("a batch while there is a debt: %d %s", a.status, a.body)
	}
	c, err := w.account.Container("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetThroughput(0); err != nil {
		t.Fatal(err)
	}
	if a := write(); a.status != http.StatusCreated {
		t.Errorf("without limit: %d", a.status)
	}
	if s := w.account.Stats(); s.Throttled < 30 || s.Operations < 200 {
		t.Errorf("stats %+v", s)
	}
}

func TestStaleDate(t *testing.T) {
	at := &clock{now: time.Now()}
	w := serve(t, &cosmosdb.Config{Now: at.Now}, docs)
	if _, a := w.ranges(t, nil); a.status != http.StatusOK {
		t.Fatalf("status %d", a.status)
	}
	at.advance(16 * time.Minute)
	if a := w.read(t, "1", "a"); a.status != http.StatusForbidden {
		t.Errorf("a request of 16 minutes ago: %d", a.status)
	}
	at.advance(-32 * time.Minute)
	if a := w.read(t, "1", "a"); a.status != http.StatusForbidden {
		t.Errorf("a request from the future: %d", a.status)
	}
	if s := w.account.Stats(); s.Unauthorized != 2 {
		t.Errorf("stats %+v", s)
	}
}
