package cosmosdb_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// wire is a client connection with as little overhead as possible.
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

// post sends documents to the container, with the headers given.
func (w *wire) post(t testing.TB, header string, body []byte) {
	date := time.Now().UTC().Format(http.TimeFormat)
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST /%s/docs HTTP/1.1\r\nHost: %s\r\nx-ms-date: %s\r\nAuthorization: %s\r\nPrefer: return=minimal\r\nContent-Length: %d\r\n%s\r\n",
		docsLink, w.host, date, sign(cosmosdb.DevKey, "post", "docs", docsLink, date), len(body), header)
	if _, err := (&net.Buffers{head.Bytes(), body}).WriteTo(w.conn); err != nil {
		t.Fatal(err)
	}
	length := 0
	for first := true; ; first = false {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			t.Fatal(err)
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 20")) {
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

const benchKey = "key-1234"

// BenchmarkBulk upserts new documents of 1 KB in batches of 100, and BenchmarkPoint one
// by one, with client and server in one process. The CPU time is that of both; the
// client's part is small, because it makes no documents.
func BenchmarkBulk(b *testing.B) {
	w := serve(b, nil, docs)
	payload := strings.Repeat("abcdefghijklmnopqrstuvwxyz 0123456789", 26)[:950]
	body := []byte("[" + strings.Repeat(upsert("id-0000000000", benchKey, `,"payload":"`+payload+`"`)+",", 99) + upsert("id-0000000000", benchKey, `,"payload":"`+payload+`"`) + "]")
	ranges, _ := w.ranges(b, nil)
	i := slices.IndexFunc(ranges, func(r keyRange) bool {
		h := partitionkey.Definition{Version: 2}.Hash(partitionkey.String(benchKey))
		return h >= r.MinInclusive && h < r.MaxExclusive
	})
	w.bench(b, body, "x-ms-cosmos-is-batch-request: True\r\nx-ms-cosmos-batch-atomic: false\r\nx-ms-documentdb-partitionkeyrangeid: "+ranges[i].ID+"\r\n")
}

func BenchmarkPoint(b *testing.B) {
	payload := strings.Repeat("abcdefghijklmnopqrstuvwxyz 0123456789", 26)[:950]
	body := fmt.Appendf(nil, `{"id":"id-0000000000","key":%q,"payload":%q}`, benchKey, payload)
	serve(b, nil, docs).bench(b, body, `x-ms-documentdb-is-upsert: True`+"\r\n"+`x-ms-documentdb-partitionkey: ["`+benchKey+`"]`+"\r\n")
}

func (w *world) bench(b *testing.B, body []byte, header string) {
	conn := dial(b, w.endpoint)
	n, used := 0, time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		for at := 0; ; at += len(`"id":"id-`) { // each document gets an id of its own
			next := bytes.Index(body[at:], []byte(`"id":"id-`))
			if next < 0 {
				break
			}
			at += next
			n++
			copy(body[at+len(`"id":"id-`):], fmt.Appendf(nil, "%010d", n))
		}
		before := cpu(b)
		b.StartTimer()
		conn.post(b, header, body)
		b.StopTimer()
		used += cpu(b) - before
		b.StartTimer()
	}
	c, err := w.account.Container("db", "docs")
	if err != nil {
		b.Fatal(err)
	}
	stats := c.Stats()
	if stats.Documents != n {
		b.Fatalf("%d documents, want %d", stats.Documents, n)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "docs/s")
	b.ReportMetric(float64(used.Nanoseconds())/float64(n)/1000, "cpu-µs/doc")
	b.ReportMetric(float64(stats.Memory)/float64(n), "B/doc")
}
