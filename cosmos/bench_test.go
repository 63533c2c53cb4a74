package cosmos

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/driver"
)

// trivial is an account that accepts everything, at as little cost as Go's
// HTTP server allows: what is left is the sink's own.
func trivial(b *testing.B, ranges int) *httptest.Server {
	yes := make([][]byte, maxOperations+1)
	for n := range yes {
		one := `{"statusCode":201,"requestCharge":6.29,"eTag":"\"00004e08-0000-0700-0000-65f1a2b30000\"","subStatusCode":0}`
		yes[n] = []byte("[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]")
	}
	var spans []string
	bound := func(i int) string {
		switch i {
		case 0:
			return ""
		case ranges:
			return "FF"
		}
		return fmt.Sprintf("%04X", i*0x4000/ranges)
	}
	for i := range ranges {
		spans = append(spans, fmt.Sprintf(`{"id":"%d","minInclusive":"%s","maxExclusive":"%s"}`, i, bound(i), bound(i+1)))
	}
	operation := []byte(`{"operationType":`)
	bodies := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/docs/docs"):
			body := bodies.Get().(*bytes.Buffer)
			defer bodies.Put(body)
			body.Reset()
			body.ReadFrom(r.Body)
			if r.Header.Get("x-ms-cosmos-is-batch-request") == "" {
				w.Header().Set("x-ms-request-charge", "6.29")
				w.WriteHeader(http.StatusCreated)
				return
			}
			answer := yes[bytes.Count(body.Bytes(), operation)]
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			w.Write(answer)
		case strings.HasSuffix(path, "/pkranges"):
			fmt.Fprintf(w, `{"PartitionKeyRanges":[%s]}`, strings.Join(spans, ","))
		case strings.HasSuffix(path, "/colls/docs"):
			io.WriteString(w, `{"_rid":"r","partitionKey":{"paths":["/key"],"kind":"Hash","version":2}}`)
		default:
			fmt.Fprintf(w, `{"writableLocations":[{"name":"here","databaseAccountEndpoint":"%[1]s/"}],"readableLocations":[{"name":"here","databaseAccountEndpoint":"%[1]s/"}]}`, server.URL)
		}
	}))
	b.Cleanup(server.Close)
	return server
}

// One operation is one document; the HTTP server's work is in it, too.
func benchmark(b *testing.B, size int, cfg *Config, source bool) {
	server := trivial(b, 5)
	s, err := New(server.URL, testKey, "db", "docs", cfg)
	if err != nil {
		b.Fatal(err)
	}
	payload := strings.Repeat("x", size-60)
	docs := make([]Document, 1024)
	for i := range docs {
		key := "key-" + strconv.Itoa(i*69)
		docs[i] = Document{ID: "document-" + strconv.Itoa(i), PartitionKey: []any{key}, Body: fmt.Appendf(nil, `{"id":"document-%d","key":%q,"payload":%q}`, i, key, payload)}
		if source {
			docs[i].Source = &Source{Partition: "0", Epoch: 1}
		}
	}
	const inFlight = 20_000
	room := make(chan struct{}, inFlight)
	var failed error
	done := func(r driver.WriteResult) {
		if r.Err != nil {
			failed = r.Err
		}
		<-room
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		room <- struct{}{}
		d := docs[i%len(docs)]
		if source {
			d.Source = &Source{Partition: "0", Epoch: 1, Sequence: int64(i)}
		}
		s.Submit(b.Context(), d, done)
		i++
	}
	if err := s.Close(b.Context()); err != nil || failed != nil {
		b.Fatal(err, failed)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "docs/s")
}

func BenchmarkBulk300B(b *testing.B)        { benchmark(b, 300, nil, false) }
func BenchmarkBulk1KB(b *testing.B)         { benchmark(b, 1000, nil, false) }
func BenchmarkConditional300B(b *testing.B) { benchmark(b, 300, nil, true) }
func BenchmarkPoint300B(b *testing.B)       { benchmark(b, 300, &Config{Mode: Point}, false) }
