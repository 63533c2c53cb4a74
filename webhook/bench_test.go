package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// benchPartitions is how many partitions the events of the benchmarks are in.
const benchPartitions = 4

// discard is a receiver that reads its requests and counts the bytes.
func discard(b *testing.B) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	b.Cleanup(srv.Close)
	return srv.URL
}

// benchBody is a body of 1 KB.
var benchBody = []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)

// BenchmarkDelivery posts events of 1 KB through the engine. Beside it, BenchmarkLoop is what a
// program without Sluice does: it keeps no checkpoints, and has no dead letters.
func BenchmarkDelivery(b *testing.B) {
	url := discard(b)
	hub := sluicetest.NewHub(group, benchPartitions)
	last := make([]sluice.Position, benchPartitions)
	for i := range b.N {
		last[i%benchPartitions] = hub.Append(strconv.Itoa(i%benchPartitions), &sluice.Event{Body: benchBody})
	}
	sink, err := New(url, nil)
	if err != nil {
		b.Fatal(err)
	}
	var done sync.WaitGroup
	done.Add(b.N)
	counting := countingSink{sink, &done}
	quiet := slog.New(slog.DiscardHandler)
	consumer, err := sluice.New(hub, &sluicetest.Leases{}, sluice.AtLeastOnce(&sluicetest.Store{}, Messages, counting, nil), &sluice.Config{Partitions: sluice.AllPartitions, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- consumer.Run(b.Context()) }()
	done.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	consumer.Stop(b.Context())
	<-ended
	sink.Close(b.Context())
}

// BenchmarkLoop posts the same events in batches of 500, by one goroutine for each partition.
func BenchmarkLoop(b *testing.B) {
	url := discard(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	type event struct {
		SpecVersion     string          `json:"specversion"`
		Source          string          `json:"source"`
		ID              string          `json:"id"`
		Type            string          `json:"type"`
		DataContentType string          `json:"datacontenttype"`
		Data            json.RawMessage `json:"data"`
	}
	var all sync.WaitGroup
	b.ResetTimer()
	for p := range benchPartitions {
		all.Go(func() {
			for first := p; first < b.N; first += 500 * benchPartitions {
				var batch []event
				for i := first; i < min(b.N, first+500*benchPartitions); i += benchPartitions {
					batch = append(batch, event{"1.0", fmt.Sprintf("//test/flights/2026/%d", p), strconv.Itoa(i), "sluice.event", "application/json", benchBody})
				}
				body, err := json.Marshal(batch)
				if err != nil {
					b.Error(err)
				}
				resp, err := client.Post(url, "application/cloudevents-batch+json", bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// countingSink counts the events that are done.
type countingSink struct {
	*Sink
	done *sync.WaitGroup
}

// Submit implements [driver.Sink].
func (s countingSink) Submit(ctx context.Context, m *Message, done func(driver.WriteResult)) {
	s.Sink.Submit(ctx, m, func(r driver.WriteResult) {
		done(r)
		if r.Err == nil {
			s.done.Done()
		}
	})
}
