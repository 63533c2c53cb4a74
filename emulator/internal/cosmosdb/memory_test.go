package cosmosdb

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// BenchmarkMemory fills a container with documents of 1 KB, and reports what each
// takes: process memory, Go heap, and time of a garbage collection. Use many documents:
// -benchtime 1000000x.
func BenchmarkMemory(b *testing.B) {
	account, err := Open([]ContainerConfig{{Database: "db", Name: "docs", Paths: []string{"/key"}, Partitions: 5}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer account.Close()
	c, _ := account.Container("db", "docs")
	payload := strings.Repeat("x", 930)
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := resident(b)
	var d document
	var body []byte
	n := 0
	for b.Loop() {
		n++
		body = fmt.Appendf(body[:0], `{"id":"%036d","key":"key-%d","payload":"%s"}`, n, n*7919%70000, payload)
		if err := d.read(body, c.paths); err != nil {
			b.Fatal(err)
		}
		p := c.route(c.hash.Hash(d.key...))
		op := operation{verb: verbUpsert, doc: &d, id: d.id, keyText: d.keyText, hash: hashOf(d.keyText, d.id)}
		p.mu.Lock()
		res := c.apply(p, &op, time.Unix(1, 0), nil)
		p.mu.Unlock()
		if res.status != 201 {
			b.Fatal(res)
		}
	}
	began := time.Now()
	runtime.GC()
	collection := time.Since(began)
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(resident(b)-start)/float64(n), "resident-B/doc")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "heap-B/doc")
	b.ReportMetric(float64(collection.Microseconds())/1000, "gc-ms")
	runtime.KeepAlive(c)
}

// resident returns the process's resident memory in bytes.
func resident(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatalf("this benchmark needs /proc: %v", err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
