package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/webhook"
)

const soundHTTP = `name: flights
source:
  eventhub:
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: flights
partitions: all
leases:
  sql: ${DATABASE_URL}
order: none
target:
  http:
    url: ${TARGET_URL}
    format: cloudevents
    type: flights.landed
    batch: {events: 100, bytes: 100KB, wait: 50ms}
    concurrency: 8
    timeout: 1m
    retry_after: 10s
    headers:
      x-functions-key: ${FUNCTION_KEY}
      x-tenant: contoso
    signature:
      key: ${WEBHOOK_KEY}
      old_key: ${OLD_WEBHOOK_KEY}
    credential: default
    scope: api://flights/.default
    tls: {server_name: flights.example.com}
`

func parseHTTP(edits ...string) (*Pipeline, error) {
	text := soundHTTP
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			panic("the sound file has no " + edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return Parse("p.yaml", []byte(text), environment("DATABASE_URL=sqlite:x.db", "TARGET_URL=https://h/api?code=topsecret", "PLAIN_URL=http://h/api",
		"FUNCTION_KEY=functionkey", "SHORT_KEY=topsecret", "BROKEN_KEY=whsec_topsecret!", "WEBHOOK_KEY=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "OLD_WEBHOOK_KEY=0123456789abcdef01234567"))
}

func TestHTTPFile(t *testing.T) {
	p, err := parseHTTP()
	if err != nil {
		t.Fatal(err)
	}
	c := targetOf[*httpTarget](p).config
	if c.TLS == nil || c.TLS.ServerName != "flights.example.com" {
		t.Errorf("TLS %+v", c.TLS)
	}
	c.TLS = nil
	want := webhook.Config{
		Type: "flights.landed", MaxEvents: 100, MaxBytes: 100_000, FlushAfter: 50 * time.Millisecond, Concurrency: 8, Timeout: time.Minute, MaxRetryAfter: 10 * time.Second,
		Header: http.Header{"X-Functions-Key": {"functionkey"}, "X-Tenant": {"contoso"}},
		Keys:   [][]byte{[]byte("0123456789abcdef0123456789abcdef"), []byte("0123456789abcdef01234567")},
		Scope:  "api://flights/.default",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if targetOf[*httpTarget](p).url != "https://h/api?code=topsecret" || targetOf[*httpTarget](p).credential != "default" || !p.AtLeastOnce() || p.atLeastOnce.config.Order != sluice.OrderNone {
		t.Errorf("target %+v", targetOf[*httpTarget](p))
	}
	for word, format := range httpFormats {
		p, err := parseHTTP("format: cloudevents\n    type: flights.landed", "format: "+word)
		if err != nil || targetOf[*httpTarget](p).config.Format != format {
			t.Errorf("format %s: %v", word, err)
		}
	}
}

func TestHTTPMistakes(t *testing.T) {
	for _, c := range []struct {
		edits []string
		want  string
	}{
		{[]string{"${TARGET_URL}", "https://h/api?code=abc"}, "p.yaml:12:5: target.http.url: has a query or a password, which may be a secret: put the URL into an environment variable and write ${TARGET_URL}"},
		{[]string{"${TARGET_URL}", "https://u:p@h/api"}, "p.yaml:12:5: target.http.url: has a query or a password, which may be a secret: put the URL into an environment variable and write ${TARGET_URL}"},
		{[]string{"${TARGET_URL}", "h/api"}, "p.yaml:12:5: target.http.url: must be a URL like https://example.com/api/events"},
		{[]string{"    url: ${TARGET_URL}\n", ""}, "p.yaml:11:3: target.http.url: is missing"},
		{[]string{"format: cloudevents", "format: xml"}, `p.yaml:13:5: target.http.format: "xml": write one of cloudevents, json, jsonlines`},
		{[]string{"format: cloudevents", "format: json"}, "p.yaml:11:3: target.http: type is for format: cloudevents only: remove it"},
		{[]string{"events: 100,", "events: 0,"}, `p.yaml:15:13: target.http.batch.events: "0": write a whole number from 1 to 100000`},
		{[]string{"bytes: 100KB", "bytes: 1TB"}, `p.yaml:15:26: target.http.batch.bytes: "1TB": write a number of bytes up to 268435456, such as 4096, 256KiB or 1MB`},
		{[]string{"wait: 50ms", "wait: soon"}, `p.yaml:15:40: target.http.batch.wait: "soon": write a duration with its unit, such as 500ms, 30s or 1m30s`},
		{[]string{"concurrency: 8", "concurrency: many"}, `p.yaml:16:5: target.http.concurrency: "many": write a whole number from 1 to 1024`},
		{[]string{"timeout: 1m", "timeouts: 1m"}, "p.yaml:17:5: target.http.timeouts: unknown key, did you mean timeout?"},
		{[]string{"${FUNCTION_KEY}", "abc"}, "p.yaml:20:7: target.http.headers.x-functions-key: holds a secret: put it into an environment variable and write ${FUNCTION_KEY}"},
		{[]string{"x-tenant", "x tenant"}, "p.yaml:21:7: target.http.headers.x tenant: is not the name of a header"},
		{[]string{"x-tenant", "content-type"}, "p.yaml:21:7: target.http.headers.content-type: is set by Sluice itself: remove it"},
		{[]string{"x-tenant", "Sluice-Epoch"}, "p.yaml:21:7: target.http.headers.Sluice-Epoch: is set by Sluice itself: remove it"},
		{[]string{"x-tenant: contoso", "Authorization: Bearer ${FUNCTION_KEY}"}, "p.yaml:11:3: target.http: credential and the header Authorization exclude each other: remove one of them"},
		{[]string{"${WEBHOOK_KEY}", "0123456789abcdef01234567"}, "p.yaml:23:7: target.http.signature.key: is a secret: put it into an environment variable and write ${WEBHOOK_KEY}"},
		{[]string{"${WEBHOOK_KEY}", "${SHORT_KEY}"}, "p.yaml:23:7: target.http.signature.key: has 9 bytes: use at least 24 random ones, for example of: openssl rand -base64 32"},
		{[]string{"${WEBHOOK_KEY}", "${BROKEN_KEY}"}, "p.yaml:23:7: target.http.signature.key: is not base64 after whsec_"},
		{[]string{"    scope: api://flights/.default\n", ""}, "p.yaml:11:3: target.http: credential and scope go together: credential: default, and a scope such as api://APP/.default"},
		{[]string{"${TARGET_URL}", "${PLAIN_URL}"}, "p.yaml:11:3: target.http: credential needs a URL that begins with https: a token must not be sent unencrypted"},
		{[]string{"${TARGET_URL}", "${PLAIN_URL}", "    credential: default\n    scope: api://flights/.default\n", ""}, "p.yaml:11:3: target.http: tls needs a URL that begins with https"},
		{[]string{"order: none", "order: none\nrate: {ru: 5}"}, "p.yaml:10:8: rate.ru: is for Cosmos DB only: write events"},
		{[]string{"order: none\n", "memory: {keep: 1h, group: {a: body.a, t: hour(enqueued)}, figures: {n: count}}\n"}, "p.yaml:9:1: memory: its statistics go to a hub, a queue or a topic: write target: {eventhub: {hub: …}}"},
	} {
		_, err := parseHTTP(c.edits...)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
}

// TestHTTPOrderPartition refuses what has no effect.
func TestHTTPOrderPartition(t *testing.T) {
	const why = ": cannot be combined with order: partition, which posts one batch of a partition after the other: remove it, or write order: key"
	for keys, want := range map[string]string{
		"rate: {events: 5}":                "p.yaml:7:1: rate",
		"backlog: {events: 5}":             "p.yaml:7:1: backlog",
		"dead_letters: {hold_keys: false}": "p.yaml:7:16: dead_letters.hold_keys",
	} {
		_, err := Parse("p.yaml", []byte(plainSink+"order: partition\n"+keys), environment())
		if err == nil || err.Error() != want+why {
			t.Errorf("got  %v\nwant %s", err, want+why)
		}
	}
	for keys, want := range map[string]string{
		"concurrency: 2":      "p.yaml:5:41: target.http.concurrency",
		"batch: {wait: 10ms}": "p.yaml:5:49: target.http.batch.wait",
	} {
		_, err := Parse("p.yaml", []byte(strings.Replace(plainSink, "localhost/}", "localhost/, "+keys+"}", 1)+"order: partition"), environment())
		if err == nil || err.Error() != want+why {
			t.Errorf("got  %v\nwant %s", err, want+why)
		}
	}
	if _, err := Parse("p.yaml", []byte(plainSink+"order: partition\ncheckpoint_every: 1s"), environment()); err != nil {
		t.Error(err)
	}
}

// TestHTTPTarget runs the delivery of a file: each event is posted with its identity, and the one
// that the receiver names becomes a dead letter.
func TestHTTPTarget(t *testing.T) {
	for _, order := range []string{"key", "none", "partition"} {
		t.Run(order, func(t *testing.T) { testHTTPTarget(t, order) })
	}
}

func testHTTPTarget(t *testing.T, order string) {
	type event struct {
		Source, ID, Type string
		Data             struct{ N int }
	}
	var mu sync.Mutex
	got := map[string]event{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var batch []event
		if err := json.Unmarshal(body, &batch); err != nil || r.Header.Get("Content-Type") != "application/cloudevents-batch+json" {
			t.Errorf("%v: %s", err, body)
		}
		failed := []map[string]any{}
		mu.Lock()
		defer mu.Unlock()
		for i, e := range batch {
			if e.Data.N == 7 {
				failed = append(failed, map[string]any{"index": i, "error": "seven"})
				continue
			}
			got[e.Source+" "+e.ID] = e
		}
		json.NewEncoder(w).Encode(map[string]any{"failed": failed})
	}))
	defer srv.Close()
	p, err := Parse("p.yaml", []byte(`source:
  eventhub: {hub: flights, connection: Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true}
partitions: all
leases:
  sql: ${DATABASE_URL}
target:
  http:
    url: ${TARGET_URL}
order: `+order), environment("TARGET_URL="+srv.URL, "DATABASE_URL=sqlite:"+filepath.Join(t.TempDir(), "x.db")))
	if err != nil {
		t.Fatal(err)
	}
	hub := sluicetest.NewHub(p.Group, 2)
	const n = 40
	for i := range n {
		hub.Append(strconv.Itoa(i%2), &sluice.Event{Body: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	ctx := t.Context()
	parts, err := p.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer parts.Close(ctx)
	consumer, err := parts.Consumer(ctx, &Options{Source: hub})
	if err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(stop) }()
	var letters []sluice.DeadLetter
	suite.Eventually(t, "every event is posted or a dead letter", func() bool {
		mu.Lock()
		defer mu.Unlock()
		if letters, err = parts.DeadLetters.List(ctx, p.Group, sluice.DeadLetterFilter{}); err != nil {
			t.Fatal(err)
		}
		return len(got)+len(letters) == n
	})
	cancel()
	<-ended
	if len(letters) != 1 || letters[0].Event.Sequence != 3 || !strings.Contains(letters[0].Error, "event 1/3: 200 OK: the receiver rejects the event (seven)") {
		t.Errorf("dead letters %+v", letters)
	}
	topic, err := hub.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := got["//localhost/flights/"+topic.Incarnation+"/0 2"]; !ok || e.Data.N != 4 || e.Type != "sluice.event" {
		t.Errorf("event %+v of %d: %v", e, len(got), got)
	}
}

// TestCheckReportsAll: a database of leases that does not answer does not hide a target that does
// not.
func TestCheckReportsAll(t *testing.T) {
	p, err := Parse("p.yaml", []byte("source: {eventhub: {connection: \"${EVENTHUB_CONNECTION_STRING}\", hub: h}}\npartitions: all\nleases:\n  sql: postgres://localhost:1/x\ntarget:\n  http: {url: \"http://localhost:1\"}\n"), environment())
	if err != nil {
		t.Fatal(err)
	}
	err = p.Check(t.Context())
	for _, want := range []string{"p.yaml:4:3: leases.sql: ", "p.yaml:5:1: target: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
