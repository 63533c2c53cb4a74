package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/sluicetest"
)

func gzipped(data string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(data))
	w.Close()
	return b.Bytes()
}

// withFormat is the sound file with source.format.
func withFormat(t *testing.T, format string) string {
	t.Helper()
	return edit(t, "  start: earliest\n", "  start: earliest\n  format:\n"+format)
}

func TestFormatMistakes(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{"    compression: brotli\n", `p.yaml:9:5: source.format.compression: "brotli": write one of gzip, deflate, zstd, auto`},
		{"    compression: gzib\n", `p.yaml:9:5: source.format.compression: "gzib": did you mean gzip?`},
		{"    max_size: 1TB\n", `p.yaml:9:5: source.format.max_size: "1TB": write a number of bytes up to 268435456, such as 4096, 256KiB or 1MB`},
		{"    max_size: 0\n", `p.yaml:9:5: source.format.max_size: "0": write a number of bytes from 1 to 268435456`},
		{"    encoding: xml\n", `p.yaml:9:5: source.format.encoding: "xml": write one of json, json_lines, avro, protobuf`},
		{"    schema: a.avsc\n", `p.yaml:9:5: source.format.schema: goes with encoding: avro or encoding: protobuf: remove it`},
		{"    encoding: json\n    message: A\n    registry: {confluent: {url: https://r}}\n", `p.yaml:10:5: source.format.message: goes with encoding: avro or encoding: protobuf: remove it`},
		{"    registry: {azure: {namespace: n, credential: default}}\n", `p.yaml:9:16: source.format.registry.azure: goes with encoding: avro: remove it, the schema of JSON is not needed`},
		{"    encoding: avro\n", `p.yaml:8:3: source.format: encoding: avro needs schema (the path of an .avsc file), or registry, or both`},
		{"    encoding: avro\n    schema: testdata/none.avsc\n", `p.yaml:10:5: source.format.schema: open testdata/none.avsc: no such file or directory`},
		{"    encoding: avro\n    schema: format.go\n", `p.yaml:10:5: source.format.schema: format.go: not a schema of Avro: `},
		{"    encoding: avro\n    schema: testdata/flight.avsc\n    message: A\n", `p.yaml:11:5: source.format.message: goes with encoding: protobuf: remove it`},
		{"    encoding: protobuf\n    message: A\n", `p.yaml:8:3: source.format: encoding: protobuf needs schema (the path of a .proto file or of a descriptor set) and message (such as pkg.Flight), or registry`},
		{"    encoding: protobuf\n    schema: testdata/flight.proto\n", `p.yaml:8:3: source.format: encoding: protobuf needs schema (the path of a .proto file or of a descriptor set) and message (such as pkg.Flight), or registry`},
		{"    encoding: protobuf\n    schema: testdata/none.proto\n    message: A\n", `p.yaml:10:5: source.format.schema: none.proto: open testdata/none.proto: no such file or directory`},
		{"    encoding: protobuf\n    schema: format.go\n    message: A\n", `p.yaml:10:5: source.format.schema: format.go: not a descriptor set: write one by protoc --include_imports --descriptor_set_out, or name a .proto file`},
		{"    encoding: protobuf\n    schema: testdata/flight.proto\n    message: pkg.Fligth\n", `p.yaml:11:5: source.format.message: "pkg.Fligth" is not a message of the schema, did you mean pkg.Flight?`},
		{"    encoding: protobuf\n    schema: testdata/flight.proto\n    message: Order\n", `p.yaml:11:5: source.format.message: "Order" is not a message of the schema: it has pkg.Flight`},
		{"    encoding: protobuf\n    schema: testdata/flight.proto\n    message: pkg.Flight\n    import_path: .git\n", `p.yaml:10:5: source.format.schema: testdata/flight.proto is not below the import path .git`},
		{"    encoding: protobuf\n    message: A\n    registry: {confluent: {url: https://r}}\n", `p.yaml:10:5: source.format.message: does not go with registry, which has the schema of each body: remove one of them`},
		{"    encoding: protobuf\n    registry: {azure: {namespace: n, credential: default}}\n", `p.yaml:10:16: source.format.registry.azure: goes with encoding: avro: events do not name a schema of Protobuf in Azure Schema Registry`},
		{"    encoding: avro\n    registry: {confluent: {url: https://r}, azure: {namespace: n, credential: default}}\n", `p.yaml:10:5: source.format.registry: needs one of confluent and azure`},
		{"    encoding: avro\n    registry: {confluent: {user: a}}\n", `p.yaml:10:16: source.format.registry.confluent.url: is missing`},
		{"    encoding: avro\n    registry: {confluent: {url: r}}\n", `p.yaml:10:28: source.format.registry.confluent.url: must be a URL like https://registry.example.com, without a user, a query and a fragment`},
		{"    encoding: avro\n    registry: {confluent: {url: 'https://u:topsecret@r'}}\n", `p.yaml:10:28: source.format.registry.confluent.url: must be a URL like https://registry.example.com, without a user, a query and a fragment`},
		{"    encoding: avro\n    registry: {confluent: {url: https://r, user: a}}\n", `p.yaml:10:16: source.format.registry.confluent: user and password go together`},
		{"    encoding: avro\n    registry: {confluent: {url: https://r, user: a, password: topsecret}}\n", `p.yaml:10:53: source.format.registry.confluent.password: is a secret: put it into an environment variable and write ${SCHEMA_REGISTRY_PASSWORD}`},
		{"    encoding: avro\n    registry: {confluent: {url: https://r, token: topsecret}}\n", `p.yaml:10:44: source.format.registry.confluent.token: is a secret: put it into an environment variable and write ${SCHEMA_REGISTRY_TOKEN}`},
		{"    encoding: avro\n    registry:\n      confluent:\n        url: https://r\n        user: a\n        password: ${SECRET}\n        token: ${SECRET}\n", `p.yaml:11:7: source.format.registry.confluent: needs user and password, or token, not both`},
		{"    encoding: avro\n    registry:\n      confluent:\n        url: http://r\n        token: ${SECRET}\n", `p.yaml:11:7: source.format.registry.confluent: credentials need a URL that begins with https: they must not be sent unencrypted`},
		{"    encoding: avro\n    registry: {confluent: {url: http://r, tls: true}}\n", `p.yaml:10:16: source.format.registry.confluent: tls needs a URL that begins with https`},
		{"    encoding: avro\n    registry: {confluent: {url: https://r, tls: {ca_file: none.pem}}}\n", `p.yaml:10:50: source.format.registry.confluent.tls.ca_file: `},
		{"    encoding: avro\n    registry: {azure: {namespace: n}}\n", `p.yaml:10:16: source.format.registry.azure.credential: is missing`},
		{"    encoding: avro\n    registry: {azure: {namespace: https://n, credential: default}}\n", `p.yaml:10:24: source.format.registry.azure.namespace: must be a host like contoso.servicebus.windows.net`},
		{"    compresion: gzip\n", `p.yaml:9:5: source.format.compresion: unknown key, did you mean compression?`},
		{"", "p.yaml:8:3: source.format: is empty: write keys and values under it"},
	} {
		if _, err := Parse("p.yaml", []byte(withFormat(t, c.format)), environment("SECRET=topsecret")); err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// formatted reads a file with a format, and opens it.
func formatted(t *testing.T, file string, env ...string) (*Pipeline, *Parts) {
	t.Helper()
	p, err := Parse("p.yaml", []byte(file), environment(env...))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { parts.Close(context.Background()) })
	return p, parts
}

// runUntil runs a consumer over a hub until something is the case.
func runUntil(t *testing.T, parts *Parts, hub *sluicetest.Hub, what string, done func() bool) {
	t.Helper()
	consumer, err := parts.Consumer(t.Context(), &Options{Source: hub})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	suite.Eventually(t, what, done)
	cancel()
	<-ended
}

// letters returns the dead letters of a pipeline, with their bodies.
func letters(t *testing.T, p *Pipeline, parts *Parts) []sluice.DeadLetter {
	t.Helper()
	list, err := parts.DeadLetters.List(t.Context(), p.Group, sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range list {
		if list[i], err = parts.DeadLetters.Get(t.Context(), p.Group, d.ID); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestFormatOfTable: rows have values of decompressed bodies. A body that does not decompress is a
// dead letter with the body that was sent, which a redrive decompresses again.
func TestFormatOfTable(t *testing.T) {
	url, db := sqliteFile(t)
	large := gzipped(`{"delay":3}` + strings.Repeat(" ", 5000))
	p, parts := formatted(t, withFormat(t, "    compression: auto\n    max_size: 4096\n"), "DATABASE_URL="+url)
	hub := sluicetest.NewHub(p.Group, 1)
	hub.Append("0", &sluice.Event{Body: gzipped(`{"delay":1}`), Properties: map[string]any{"content-encoding": "gzip"}},
		&sluice.Event{Body: large, Properties: map[string]any{"content-encoding": "gzip"}},
		&sluice.Event{Body: []byte(`{"delay":2}`)})
	rows := func() string { return query(t, db, "SELECT delay FROM flights ORDER BY 1") }
	runUntil(t, parts, hub, "the last event is a row", func() bool { return strings.HasSuffix(rows(), "2") })
	const want = "decompress the body: gzip: it has more than 4096 bytes then, the limit (max_size)"
	if found := letters(t, p, parts); rows() != "1\n2" || len(found) != 1 || found[0].Error != want || !bytes.Equal(found[0].Event.Body, large) || found[0].Attempts != 1 {
		t.Fatalf("rows %q, dead letters %+v", rows(), found)
	}
	p, parts = formatted(t, withFormat(t, "    compression: auto\n    max_size: 8192\n"), "DATABASE_URL="+url)
	if n, err := parts.DeadLetters.Redrive(t.Context(), p.Group, sluice.DeadLetterFilter{}, time.Time{}); n != 1 || err != nil {
		t.Fatalf("%d dead letters to redrive, %v", n, err)
	}
	runUntil(t, parts, hub, "the dead letter is a row", func() bool { return rows() == "1\n2\n3" && len(letters(t, p, parts)) == 0 })
}

// TestFormatOfHTTP: an endpoint gets the decompressed body as JSON, and a body that does not
// decompress is a dead letter as it was sent.
func TestFormatOfHTTP(t *testing.T) {
	var mu sync.Mutex
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var batch []struct{ Data json.RawMessage }
		if err := json.Unmarshal(body, &batch); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch {
			got = append(got, string(e.Data))
		}
	}))
	defer srv.Close()
	p, parts := formatted(t, `source:
  eventhub:
    hub: flights
    connection: ${EVENTHUB_CONNECTION_STRING}
  format: {compression: gzip}
partitions: all
leases:
  sql: ${DATABASE_URL}
target:
  http:
    url: ${TARGET_URL}
`, "TARGET_URL="+srv.URL, "DATABASE_URL=sqlite:"+filepath.Join(t.TempDir(), "x.db"))
	hub := sluicetest.NewHub(p.Group, 1)
	hub.Append("0", sluicetest.Bodies(string(gzipped(`{"n":1}`)), `{"n":2}`)...)
	var found []sluice.DeadLetter
	runUntil(t, parts, hub, "one event is posted, and one is a dead letter", func() bool {
		mu.Lock()
		defer mu.Unlock()
		found = letters(t, p, parts)
		return len(got) == 1 && len(found) == 1
	})
	if got[0] != `{"n":1}` || string(found[0].Event.Body) != `{"n":2}` || found[0].Error != "make records: decompress the body: gzip: it is not gzip" {
		t.Errorf("posted %q, dead letter %+v", got, found[0])
	}
}

// TestFormatOfCosmos: documents are decompressed bodies, also those that an audit looks for.
func TestFormatOfCosmos(t *testing.T) {
	p, err := parseCosmos("    hub: docs\n", "    hub: docs\n  format: {compression: gzip}\n")
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"id":"a","key":"k"}`
	docs, err := decodedRecords(p, targetOf[*cosmosTarget](p).documents)(t.Context(), &sluice.Event{Body: gzipped(body)})
	if err != nil || len(docs) != 1 || string(docs[0].Body) != body || docs[0].ID != "a" {
		t.Errorf("%+v, %v", docs, err)
	}
	audited := &Documents{pipeline: p, target: targetOf[*cosmosTarget](p)}
	if doc, err := audited.document(t.Context(), &sluice.Event{Body: gzipped(body)}); err != nil || string(doc.Body) != body {
		t.Errorf("%+v, %v", doc, err)
	}
	if _, err := audited.document(t.Context(), &sluice.Event{Body: []byte(body)}); err == nil || errors.Is(err, sluice.ErrOutage) {
		t.Errorf("got %v", err)
	}
}

// TestFormatOfFramedJSON: the header of Confluent's registry is removed from JSON, without a
// request.
func TestFormatOfFramedJSON(t *testing.T) {
	p, err := Parse("p.yaml", []byte(withFormat(t, "    registry: {confluent: {url: http://127.0.0.1:1}}\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.body.format.Event(t.Context(), &sluice.Event{Body: []byte("\x00\x00\x00\x00\x07{}")})
	if err != nil || string(e.Body) != "{}" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestFormatOfMessages: a message target sends the decoded body, without what described the body as
// it was sent.
func TestFormatOfMessages(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(replaced(t, soundStages, []string{"{hub: flights}, start: earliest}", "{hub: flights}, format: {encoding: avro, compression: auto, schema: testdata/flight.avsc}}",
		"        body:\n          airport: body.origin\n          departure: {from: body.departure, type: timestamp}\n          delay: {from: body.delay, type: integer}\n", "", "key: body.origin", "key: body.number"})), environment())
	if err != nil {
		t.Fatal(err)
	}
	p := f.Stages[0]
	sent, err := decodedRecords(p, targetOf[*messageTarget](p).messages)(t.Context(), &sluice.Event{Body: gzipped(avroFlight("AA 7", 3)), ContentType: "avro/binary",
		Properties: map[string]any{"content-encoding": "gzip", "a": "b"}})
	if err != nil || len(sent) != 1 {
		t.Fatal(sent, err)
	}
	if m := sent[0]; !strings.HasPrefix(string(m.Body), `{"date":"2026-01-31","delay":3,`) || m.Key != "AA 7" || m.ContentType != "application/json" || fmt.Sprint(m.Properties) != "map[a:b]" {
		t.Errorf("%+v, body %s", m, m.Body)
	}
}

// TestFormatOfRollup: statistics are of decompressed bodies.
func TestFormatOfRollup(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(strings.Replace(soundStages, "{eventhub: {hub: clean}}", "{eventhub: {hub: clean}, format: {compression: gzip}}", 1)), environment())
	if err != nil {
		t.Fatal(err)
	}
	r := newRollupWorker(f.Stages[1])
	m := r.config.mapping
	r.partitions["0"] = &rollupPartition{row: make([]any, len(m.columns)), picked: make([]jsonpick.Value, m.paths)}
	now := time.Now().UTC()
	body := fmt.Sprintf(`{"airport":"SAN","departure":%q,"delay":5}`, now.Format(time.RFC3339))
	err = r.apply(t.Context(), sluice.Batch{Partition: "0", Events: []*sluice.Event{{Enqueued: now, Body: gzipped(body)}, {Sequence: 1, Enqueued: now, Body: []byte(body)}}})
	if err != nil || r.stats != (RollupStats{Counted: 1, Malformed: 1}) {
		t.Errorf("%+v, %v", r.stats, err)
	}
}

// TestFormatInParts: a batch whose decompressed bodies need much memory reaches the handler in
// parts, and errors name the events of the batch.
func TestFormatInParts(t *testing.T) {
	p, err := Parse("p.yaml", []byte(withFormat(t, "    compression: gzip\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	body := gzipped(strings.Repeat(" ", 8<<20))
	events := make([]*sluice.Event, 20)
	for i := range events {
		events[i] = &sluice.Event{Sequence: int64(i), Body: body}
	}
	var got []int64
	var fails error
	h := decoded(p, func(_ context.Context, _ int, b sluice.Batch) error {
		if len(b.Events) > 8 || b.Partition != "7" {
			t.Errorf("%d events of partition %s", len(b.Events), b.Partition)
		}
		for _, e := range b.Events {
			got = append(got, e.Sequence)
		}
		if len(got) > 8 {
			return fails
		}
		return nil
	})
	batch := sluice.Batch{Partition: "7", Events: events}
	if err := h(t.Context(), 0, batch); err != nil || fmt.Sprint(got) != "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]" {
		t.Errorf("got %v, %v", got, err)
	}
	got, fails = nil, errors.Join(&driver.EventError{Index: 1, Err: io.EOF}, &driver.EventError{Index: 2, Err: io.EOF})
	if err := h(t.Context(), 0, batch); err == nil || err.Error() != "event 9 of the batch: EOF\nevent 10 of the batch: EOF" {
		t.Errorf("got %v", err)
	}
	events[18] = &sluice.Event{Sequence: 18, Body: []byte("?")}
	got, fails = nil, nil
	if err := h(t.Context(), 0, batch); err == nil || err.Error() != "event 18 of the batch: decompress the body: gzip: it is not gzip" || !errors.Is(err, sluice.ErrRejected) {
		t.Errorf("got %v", err)
	}
}
