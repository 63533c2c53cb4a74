package cosmosd_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/cosmosd"
	"github.com/sluice-go/sluice/internal/epk"
)

// bulkBody is a batch of n upserts of documents of 1 KB, for one range.
func bulkBody(ids *int, keys []string, n int, payload string) []byte {
	b := []byte{'['}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		*ids++
		b = append(b, upsert(fmt.Sprintf("id-%010d", *ids), keys[*ids%len(keys)], `,"payload":"`+payload+`"`)...)
	}
	return append(b, ']')
}

// wire is a connection that costs a client as little as can be.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	host string
}

func dial(t testing.TB, endpoint string) *wire {
	t.Helper()
	host := strings.Trim(strings.TrimPrefix(endpoint, "http://"), "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{conn, bufio.NewReaderSize(conn, 64<<10), host}
}

func (w *wire) post(t testing.TB, rangeID string, body []byte) {
	date := time.Now().UTC().Format(http.TimeFormat)
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST /%s/docs HTTP/1.1\r\nHost: %s\r\nx-ms-date: %s\r\nAuthorization: %s\r\nx-ms-cosmos-is-batch-request: True\r\n"+
		"x-ms-cosmos-batch-atomic: false\r\nx-ms-documentdb-partitionkeyrangeid: %s\r\nPrefer: return=minimal\r\nContent-Length: %d\r\n\r\n",
		docsLink, w.host, date, sign(cosmosd.DevKey, "post", "docs", docsLink, date), rangeID, len(body))
	if _, err := (&net.Buffers{head.Bytes(), body}).WriteTo(w.conn); err != nil {
		t.Fatal(err)
	}
	length := 0
	for first := true; ; first = false {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		if first && !bytes.Contains(line, []byte(" 200 ")) {
			t.Fatalf("answer %s", line)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if _, err := io.CopyN(io.Discard, w.in, int64(length)); err != nil {
		t.Fatal(err)
	}
}

func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBulk upserts documents of 1 KB in batches of 100, client and server in one process. The CPU is that of both; the client's part, which makes no
// documents, is small.
func BenchmarkBulk(b *testing.B) {
	w := serve(b, nil, docs)
	var all []string
	for i := range 70_000 {
		all = append(all, fmt.Sprint("key-", i))
	}
	ranges, _ := w.ranges(b, nil)
	byRange := make(map[string][]string)
	for _, k := range all {
		h := epk.Definition{Version: 2}.Hash(epk.String(k))
		for _, r := range ranges {
			if h >= r.MinInclusive && h < r.MaxExclusive {
				byRange[r.ID] = append(byRange[r.ID], k)
			}
		}
	}
	payload := strings.Repeat("abcdefghijklmnopqrstuvwxyz 0123456789", 26)[:950]
	ids, conn := 0, dial(b, w.endpoint)
	body := bulkBody(&ids, byRange["0"], 100, payload)
	docs := 0
	fresh := func() { // other ids, without the cost of making documents
		ids++
		for i := 0; ; {
			n := bytes.Index(body[i:], []byte(`"id":"id-`))
			if n < 0 {
				break
			}
			i += n + 9
			docs++
			copy(body[i:], fmt.Appendf(nil, "%010d", docs))
		}
	}
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	start, used := time.Now(), time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		fresh()
		b.StartTimer()
		c0 := cpu(b)
		conn.post(b, "0", body)
		used += cpu(b) - c0
	}
	runtime.ReadMemStats(&m1)
	b.ReportMetric(float64(docs)/b.Elapsed().Seconds(), "docs/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(docs)/1000, "cpu-µs/doc")
	b.ReportMetric(float64(m1.Mallocs-m0.Mallocs)/float64(docs), "allocs/doc")
	c, _ := w.account.Container("db", "docs")
	b.ReportMetric(float64(c.Stats().Memory)/float64(c.Stats().Documents), "B/doc")
	_ = start
}
