package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cosmos"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// mute is a server that accepts connections, and never answers.
type mute struct {
	net.Listener
	mu  sync.Mutex
	got bytes.Buffer
}

func startMute(t *testing.T) *mute {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(m, conn) // until the client gives up
		}
	}()
	return m
}

func (m *mute) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got.Write(b)
}

// TestTimeouts describes logs whose servers never answer. The default would be 30 seconds.
func TestTimeouts(t *testing.T) {
	need.RealTime(t)
	for name, source := range map[string]string{
		"hub":   "{eventhub: {hub: flights, timeout: 1s, connection: 'Endpoint=sb://ADDRESS;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true'}}",
		"topic": "{kafka: {topic: flights, timeout: 1s, client_id: billing-7, brokers: ADDRESS}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startMute(t)
			source := strings.Replace(source, "ADDRESS", server.Addr().String(), 1)
			p, err := Parse("p.yaml", []byte("source: "+source+plainFile[strings.Index(plainFile, "\npartitions"):]), environment())
			if err != nil {
				t.Fatal(err)
			}
			log, err := p.source.open("")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = log.Describe(t.Context())
			if took := time.Since(began); err == nil || took > 25*time.Second {
				t.Errorf("%v after %v", err, took)
			}
			if err := log.Close(t.Context()); err != nil {
				t.Error(err)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if name == "topic" && !bytes.Contains(server.got.Bytes(), []byte("billing-7")) {
				t.Errorf("the requests do not name the client: %q", server.got.Bytes())
			}
		})
	}
}

func TestLogSettings(t *testing.T) {
	p, err := Parse("p.yaml", []byte(strings.Replace(plainFile, "{hub: flights,", "{hub: flights, prefetch: {events: 500, bytes: 1MB}, timeout: 5s,", 1)), environment())
	if err != nil {
		t.Fatal(err)
	}
	parked, err := Parse("p.yaml", []byte(strings.Replace(plainFile, "{hub: flights,", "{hub: flights, undecodable: deadletter,", 1)), environment())
	if err != nil || parked.Connections().Hub.Config.Undecodable != eventhub.ParkUndecodable {
		t.Errorf("undecodable: %v", err)
	}
	if c := p.Connections().Hub.Config; c.Prefetch != 500 || c.PrefetchBytes != 1_000_000 || c.Timeout != 5*time.Second {
		t.Errorf("hub %+v", c)
	}
	topic := parseTopic(t, editTopic(t, "    topic: flights\n", "    topic: flights\n    prefetch: {bytes: 1MB}\n    max_record_batch: 100MiB\n    client_id: billing\n    timeout: 5s\n")).source.(*kafkaTopic)
	if topic.prefetchBytes != 1_000_000 || topic.maxRecordBatch != 100<<20 || topic.cluster.config.ClientID != "billing" || topic.cluster.config.Timeout != 5*time.Second {
		t.Errorf("topic %+v of %+v", topic, topic.cluster)
	}
	for edit, want := range map[string]string{
		"prefetch: {events: 5}":                  "p.yaml:6:16: source.kafka.prefetch.events: unknown key: known keys are bytes",
		"max_record_batch: 1":                    `p.yaml:6:5: source.kafka.max_record_batch: "1": write a number of bytes from 4096 to 1073741824`,
		"timeout: 1h":                            `p.yaml:6:5: source.kafka.timeout: "1h": write a duration from 1s to 10m0s`,
		"client_id: " + strings.Repeat("x", 201): `p.yaml:6:5: source.kafka.client_id: "` + strings.Repeat("x", 40) + `…": has 201 bytes: at most 200`,
	} {
		_, err := Parse("p.yaml", []byte(editTopic(t, "    topic: flights\n", "    topic: flights\n    "+edit+"\n")), kafkaEnvironment())
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// requests counts the requests that write documents, and lets none through while hold is true.
type requests struct {
	hold bool

	mu                        sync.Mutex
	inFlight, most, documents int // documents: the most in one request
}

func (r *requests) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodPost {
		return http.DefaultTransport.RoundTrip(q)
	}
	if r.hold {
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	r.inFlight++
	r.most, r.documents = max(r.most, r.inFlight), max(r.documents, bytes.Count(body, []byte(`"operationType"`)))
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight--
	}()
	return http.DefaultTransport.RoundTrip(q)
}

// TestCosmosSettings writes 40 documents at once to an account.
func TestCosmosSettings(t *testing.T) {
	const n = 40
	for keys, check := range map[string]func(r *requests, took time.Duration, failed int) bool{
		// While no request is on its way, documents wait for others for a hundredth of it.
		"batch: {wait: 5m}": func(r *requests, took time.Duration, failed int) bool {
			return failed == 0 && r.documents == n && took >= 3*time.Second
		},
		"batch: {wait: 1m, documents: 5}": func(r *requests, _ time.Duration, failed int) bool { return failed == 0 && r.documents == 5 },
		"batch: {wait: 1m, bytes: 1000}":  func(r *requests, _ time.Duration, failed int) bool { return failed == 0 && r.documents < 20 },
		"mode: point\n    concurrency: 2": func(r *requests, _ time.Duration, failed int) bool { return failed == 0 && r.most <= 2 },
		"timeout: 1s":                     func(r *requests, took time.Duration, failed int) bool { return failed == n && took < 9*time.Second },
	} {
		t.Run(keys, func(t *testing.T) {
			if strings.HasPrefix(keys, "timeout") {
				need.RealTime(t)
			}
			account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer account.Close()
			p, err := parseCosmos("    mode: point\n", "    "+keys+"\n", "    conditional: true\n", "", "${COSMOS_ENDPOINT}", account.Endpoint(), "${COSMOS_KEY}", emulatorKey)
			if err != nil {
				t.Fatal(err)
			}
			r := &requests{hold: strings.HasPrefix(keys, "timeout")}
			targetOf[*cosmosTarget](p).key = account.Key()
			targetOf[*cosmosTarget](p).config.Client.Transport = &http.Client{Transport: r}
			sink, err := targetOf[*cosmosTarget](p).open(0)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close(context.WithoutCancel(t.Context()))
			results := make(chan driver.WriteResult, n)
			began := time.Now()
			for i := range n {
				sink.Submit(t.Context(), cosmos.Document{ID: fmt.Sprint(i), PartitionKey: []any{"k"}, Body: fmt.Appendf(nil, `{"key":"k","n":%d}`, i)}, func(r driver.WriteResult) { results <- r })
			}
			failed := 0
			for range n {
				if r := <-results; r.Err != nil {
					failed++
					err = r.Err
				}
			}
			took := time.Since(began)
			r.mu.Lock()
			defer r.mu.Unlock()
			if !check(r, took, failed) {
				t.Errorf("%d documents in a request, %d requests at once, %d failed (%v), %v", r.documents, r.most, failed, err, took)
			}
		})
	}
}

// TestCachedVersions writes newer versions of 40 documents. One whose version is cached needs one
// operation, another three: a create that fails, a read and the replacement.
func TestCachedVersions(t *testing.T) {
	const n = 40
	for keys, fits := range map[string]func(operations int64) bool{
		"":                          func(operations int64) bool { return operations == n },
		"    cached_versions: 40\n": func(operations int64) bool { return operations == n },
		"    cached_versions: 5\n":  func(operations int64) bool { return operations >= 3*(n-10)+10 },
	} {
		t.Run(keys, func(t *testing.T) {
			account, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer account.Close()
			p, err := parseCosmos("    operation: create\n", "", "    mode: point\n", keys, "${COSMOS_ENDPOINT}", account.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			targetOf[*cosmosTarget](p).key = account.Key()
			sink, err := targetOf[*cosmosTarget](p).open(0)
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close(context.WithoutCancel(t.Context()))
			write := func(version int) (operations int64) {
				before := account.Stats().Operations
				results := make(chan error, n)
				for i := range n {
					e := &sluice.Event{Partition: "0", Sequence: int64(version*n + i), Body: fmt.Appendf(nil, `{"id":"%d","key":"k"}`, i)}
					doc, err := targetOf[*cosmosTarget](p).document(e)
					if err != nil {
						t.Fatal(err)
					}
					doc.Source = sourceOf("docs", "1", 1, e)
					sink.Submit(t.Context(), doc, func(r driver.WriteResult) { results <- r.Err })
				}
				for range n {
					if err := <-results; err != nil {
						t.Fatal(err)
					}
				}
				return account.Stats().Operations - before
			}
			if first, second := write(1), write(2); first != n || !fits(second) {
				t.Errorf("%d operations, then %d", first, second)
			}
		})
	}
}

func TestCosmosSettingsErrors(t *testing.T) {
	for keys, want := range map[string]string{
		"batch: {documents: 101}":            `p.yaml:22:13: target.cosmos.batch.documents: "101": write a whole number from 1 to 100`,
		"batch: {bytes: 3MB}":                `p.yaml:22:13: target.cosmos.batch.bytes: "3MB": write a number of bytes up to 2000000, such as 4096, 256KiB or 1MB`,
		"batch: {wait: 1h}":                  `p.yaml:22:13: target.cosmos.batch.wait: "1h": write a duration from 1ms to 10m0s`,
		"mode: point\n    batch: {wait: 2s}": `p.yaml:23:5: target.cosmos.batch: is for mode: bulk: remove it, mode: point has one request for each document`,
		"concurrency: 0":                     `p.yaml:22:5: target.cosmos.concurrency: "0": write a whole number from 1 to 1024`,
		"timeout: 1ms":                       `p.yaml:22:5: target.cosmos.timeout: "1ms": write a duration from 1s to 10m0s`,
		"cached_versions: 0":                 `p.yaml:22:5: target.cosmos.cached_versions: "0": write a whole number from 1 to 100000000`,
	} {
		if _, err := parseCosmos("    mode: point\n", "    "+keys+"\n"); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err := parseCosmos("    conditional: true\n    mode: point\n", "    cached_versions: 9\n")
	if want := "p.yaml:21:5: target.cosmos.cached_versions: is for conditional: true: remove it, other writes need no versions"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	p, err := parseCosmos("    mode: point\n", "    cached_versions: 9\n")
	if err != nil || targetOf[*cosmosTarget](p).config.CachedVersions != 9 {
		t.Errorf("cached versions: %v", err)
	}
}
