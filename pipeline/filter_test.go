package pipeline

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/pipeline/internal/jsonpick"
	"github.com/sluice-go/sluice/sluicetest"
)

// filtering reads the sound file with a key only.
func filtering(t *testing.T, only string) *Pipeline {
	t.Helper()
	p, err := Parse("p.yaml", []byte(edit(t, "partitions: all\n", "partitions: all\n"+only)), environment("WANTED=departed"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOnly(t *testing.T) {
	const handled, left = "handled", "left out"
	one := map[string]any{"n": int64(7), "kind": "flight"}
	for _, c := range []struct {
		only       string
		properties map[string]any
		body       string
		want       string
	}{
		{"{body.status: departed, properties.n: 7}", one, `{"status":"departed"}`, handled},
		{"{body.status: '${WANTED}', properties.n: 7}", one, `{"status":"departed"}`, handled},
		{"{body.status: departed, properties.n: 7}", one, `{"status":"cancelled"}`, left},
		{"{body.status: departed, properties.n: 7}", one, `{}`, left},
		{"{body.status: departed, properties.n: 7}", one, `{"status":null}`, left},
		{"{body.status: departed, properties.n: 7}", one, `{"status":["departed"]}`, "value body.status: body.status: an array or object where a string (the type json takes every value) should be"},
		{"{body.status: departed, properties.n: 7}", one, `no JSON`, "body: not JSON "},
		// A body is not looked at if the rest decides.
		{"{body.status: departed, properties.n: 7}", nil, `no JSON`, left},
		{"{body.status: departed, properties.n: 8}", one, `no JSON`, left},
		{"{properties.n: 7}", one, `no JSON`, handled},
		{"{lower(body.status): departed, 'part(properties.kind, \"i\", 2)': ght}", one, `{"status":"DEPARTED"}`, handled},
		{"{lower(body.status): departed, 'part(properties.kind, \"i\", 2)': hgt}", one, `no JSON`, left},
		{"{body.n: [1, '2', true]}", nil, `{"n":2}`, handled},
		{"{body.n: [1, '2', true]}", nil, `{"n":true}`, handled},
		{"{body.n: [1, '2', true]}", nil, `{"n":3}`, left},
		{"{properties.kind: {not: heartbeat}}", one, ``, handled},
		{"{properties.kind: {not: heartbeat}}", nil, ``, handled},
		{"{properties.kind: {not: [heartbeat, flight]}}", one, ``, left},
		{"{key: k, partition: 0}", nil, ``, handled},
		{"{key: other}", nil, ``, left},
		{"{type: Flight}", map[string]any{"cloudEvents:type": "Flight"}, ``, handled},
		{"{type: Flight}", map[string]any{"cloudEvents_type": "Flight"}, ``, handled},
		{"{type: Flight}", map[string]any{"ce_type": "Flight"}, ``, handled},
		{"{type: Flight}", map[string]any{"type": "Flight"}, ``, left},
		{"{type: Flight}", map[string]any{"content-type": "application/cloudevents+json; charset=utf-8"}, `{"specversion":"1.0","type":"Flight"}`, handled},
		{"{type: Flight}", map[string]any{"content-type": "application/cloudevents+json"}, `{"type":"Gate"}`, left},
		{"{type: Flight}", map[string]any{"content-type": "application/cloudevents+json"}, `no JSON`, "value type: type: body: not JSON "},
		{"{type: Flight}", nil, `{"type":"Flight"}`, left},
	} {
		p := filtering(t, "only: "+c.only+"\n")
		e := &sluice.Event{Partition: "0", Key: "k", Properties: c.properties, Body: []byte(c.body)}
		to, err := p.routing.route(e)
		got := left
		switch {
		case err != nil:
			got = err.Error()
		case to == 0:
			got = handled
		}
		if got != c.want && !(strings.HasSuffix(c.want, " ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s of %v, %s: %s, want %s", c.only, c.properties, c.body, got, c.want)
		}
		if p.Filter()(e) != (got != left) {
			t.Errorf("%s of %v, %s: the engine has another filter", c.only, c.properties, c.body)
		}
	}
	if p := filtering(t, ""); p.Filter() != nil {
		t.Error("there is a filter without the key")
	}
}

func TestOnlyErrors(t *testing.T) {
	for only, want := range map[string]string{
		"{}":                                 "p.yaml:9:1: only: has no values: write them as body.PATH: VALUE",
		"flights":                            "p.yaml:9:1: only: a single value where keys and values should be",
		"{body: x}":                          "p.yaml:9:8: only.body: cannot be the whole body: write body.PATH",
		"{propertes.n: x}":                   `p.yaml:9:8: only.propertes.n: "propertes.n": write `,
		"{typ: x}":                           `p.yaml:9:8: only.typ: "typ": did you mean type?`,
		"{key: }":                            "p.yaml:9:8: only.key: is empty",
		"{key: []}":                          "p.yaml:9:8: only.key: is an empty list",
		"{key: [a, {b: c}]}":                 "p.yaml:9:17: only.key[1]: keys and values where a single value should be",
		"{key: {no: x}}":                     "p.yaml:9:14: only.key.no: unknown key, did you mean not?",
		"{key: {not: {}}}":                   "p.yaml:9:14: only.key.not: keys and values where a single value should be",
		"{key: ['${UNSET}']}":                "p.yaml:9:14: only.key[0]: the environment variable UNSET is not set",
		"{key: [" + many("a, ", 1001) + "]}": "p.yaml:9:8: only.key: has 1001 entries: at most 1000",
	} {
		_, err := Parse("p.yaml", []byte(edit(t, "partitions: all\n", "partitions: all\nonly: "+only+"\n")), environment())
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("only: %.100s: got %v, want %s", only, err, want)
		}
	}
}

func many(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text, n), ", ") }

// TestOnlyInATable: rows, dead letters and counts of a pipeline with a filter, and of the redrive
// of a dead letter that it leaves out by now.
func TestOnlyInATable(t *testing.T) {
	address, db := sqliteFile(t)
	read := func(only string) (*Pipeline, *Parts) {
		return opened(t, address, flightsTarget+only)
	}
	p, parts := read("only: {body.kind: [flight, gate]}\n")
	hub := sluicetest.NewHub(p.Group, 2)
	filtered := consumeFrom(t, hub, parts, sluicetest.Bodies(`{"kind":"flight","delay":1}`, `{"kind":"heartbeat"}`, `{"kind":"gate"}`, `no JSON`,
		`{}`, `{"kind":"flight","delay":2}`, `{"kind":"flight","delay":3}`, `{"kind":"heartbeat"}`)...)
	if got := query(t, db, "SELECT delay FROM flights ORDER BY delay"); got != "1\n2\n3" {
		t.Errorf("rows %s", got)
	}
	dead := deadLetters(t, p, parts)
	if len(dead) != 2 || !strings.HasPrefix(dead[0], "body: not JSON") || dead[1] != "column delay: body.delay: is missing" || filtered != 3 {
		t.Errorf("dead letters %q, %d filtered", dead, filtered)
	}
	if _, err := parts.DeadLetters.Redrive(t.Context(), p.Group, sluice.DeadLetterFilter{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	p, parts = read("only: {body.kind: flight}\n")
	c, err := parts.Consumer(t.Context(), &Options{Source: hub})
	if err != nil {
		t.Fatal(err)
	}
	applied, failed, err := c.Redrive(t.Context())
	if err != nil || applied != 1 || failed != 1 {
		t.Errorf("redriven: %d, %d, %v", applied, failed, err)
	}
	if dead := deadLetters(t, p, parts); len(dead) != 1 || !strings.HasPrefix(dead[0], "body: not JSON") {
		t.Errorf("dead letters after the filter has changed: %q", dead)
	}
}

// TestOnlyInCompressedBodies: the filter reads what the delivery reads.
func TestOnlyInCompressedBodies(t *testing.T) {
	address, db := sqliteFile(t)
	p, parts := formatted(t, withFormat(t, "    compression: gzip\n")+"only: {body.kind: flight}\n", "DATABASE_URL="+address)
	filtered := consume(t, p, parts, sluicetest.Bodies(string(gzipped(`{"kind":"flight","delay":1}`)), string(gzipped(`{"kind":"gate"}`)), "no gzip", string(gzipped(`{"kind":"gate"}`)), string(gzipped(`no JSON`)))...)
	if got := query(t, db, "SELECT delay FROM flights"); got != "1" || filtered != 2 || len(deadLetters(t, p, parts)) != 2 {
		t.Errorf("rows %q, %d filtered, dead letters %q", got, filtered, deadLetters(t, p, parts))
	}
}

// TestFilterOfUndecodedEvents: an event is left out only if the decoded event is, or if what does
// not depend on its body shows that.
func TestFilterOfUndecodedEvents(t *testing.T) {
	const handled, left = true, false
	avro, auto := "    encoding: avro\n    schema: testdata/flight.avsc\n", "    compression: auto\n"
	packed := string(gzipped(`{"kind":"flight"}`))
	properties := func(list ...string) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(list); i += 2 {
			m[list[i]] = list[i+1]
		}
		return m
	}
	structuredType := "application/cloudevents+json"
	for _, c := range []struct {
		format, only string
		event        sluice.Event
		want         bool
	}{
		// A body that does not decode, although it is JSON, does not decide.
		{avro, "{body.kind: flight}", sluice.Event{Body: []byte(`{"kind":"gate"}`)}, handled},
		{avro, "{body.kind: flight}", sluice.Event{Body: []byte(`7`)}, handled},
		{avro, "{properties.n: x, body.kind: flight}", sluice.Event{Body: []byte(`7`), Properties: properties("n", "y")}, left},
		{avro, "{type: x, body.kind: flight}", sluice.Event{Body: []byte(`7`), Properties: properties("ce_type", "y")}, left},
		{avro, "{type: x}", sluice.Event{Body: []byte(`7`), Properties: properties("ce_type", "y")}, left},
		// Nor does a value that is no text.
		{auto, "{properties.n: x, body.kind: flight}", sluice.Event{Body: []byte(packed), Properties: properties("content-encoding", "gzip", "n", "\xff")}, handled},
		// What decoding changes is that of the decoded event, as in the delivery.
		{auto, "{properties.Content-Encoding: gzip}", sluice.Event{Body: []byte(packed), Properties: properties("Content-Encoding", "gzip")}, left},
		{auto, "{content_type: text/plain}", sluice.Event{Body: []byte(packed), ContentType: "text/plain", Properties: properties("content-encoding", "gzip")}, handled},
		{auto, "{type: flight}", sluice.Event{Body: gzipped(`{"type":"flight"}`), ContentType: structuredType, Properties: properties("content-encoding", "gzip")}, handled},
		{auto, "{type: flight}", sluice.Event{Body: gzipped(`{"type":"gate"}`), ContentType: structuredType, Properties: properties("content-encoding", "gzip")}, left},
		// The type is in the blob, which is not known here.
		{auto, "{type: flight}", sluice.Event{Body: []byte(`{"claim_check":{"blob":"a"}}`), ContentType: structuredType, Properties: properties(blobstore.ReferenceProperty, "1")}, handled},
		{auto, "{body.kind: flight, key: k}", sluice.Event{Body: []byte(`{"claim_check":{"blob":"a"}}`), Properties: properties(blobstore.ReferenceProperty, "1")}, left},
	} {
		p, err := Parse("p.yaml", []byte(withFormat(t, c.format)+"only: "+c.only+"\n"), environment())
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Filter()(&c.event); got != c.want {
			t.Errorf("%s, %s: %t, want %t", c.only, c.event.Body, got, c.want)
		}
		if whole, err := p.body.wholeEvent(t.Context(), &c.event); err == nil {
			if to, err := p.routing.route(whole); (to != leftOut || err != nil) != c.want {
				t.Errorf("%s, %s: the delivery decides otherwise: %d, %v", c.only, c.event.Body, to, err)
			}
		}
	}
}

// TestFilterInAnOutage: while a schema registry is down, no event is left out, and not every event
// waits for it.
func TestFilterInAnOutage(t *testing.T) {
	var requests atomic.Int32
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(registry.Close)
	p, err := Parse("p.yaml", []byte(withFormat(t, "    encoding: avro\n    registry: {confluent: {url: "+registry.URL+"}}\n")+"only: {body.kind: flight}\n"), environment())
	if err != nil {
		t.Fatal(err)
	}
	handles := p.Filter()
	for range 10 {
		if !handles(&sluice.Event{Body: []byte("\x00\x00\x00\x00\x01")}) {
			t.Fatal("an event is left out")
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	if _, err := p.Handles(t.Context(), &sluice.Event{Body: []byte("\x00\x00\x00\x00\x01")}); !errors.Is(err, sluice.ErrOutage) {
		t.Errorf("an audit gets %v", err)
	}
}

// TestOnlyInARollup: statistics are of the events that the filter leaves.
func TestOnlyInARollup(t *testing.T) {
	f, err := ParseFile("p.yaml", []byte(editStages(t, "  figures:\n", "  figures:\n    only: {body.airport: SAN}\n")), environment())
	if err != nil {
		t.Fatal(err)
	}
	r := newRollupWorker(f.Stages[1])
	m := r.config.mapping
	r.partitions["0"] = &rollupPartition{row: make([]any, len(m.columns)), picked: make([]jsonpick.Value, m.paths)}
	now := time.Now().UTC()
	var events []*sluice.Event
	for i, airport := range []string{`"SAN"`, `"LAX"`, `"SAN"`, `null`, `[]`} {
		body := fmt.Sprintf(`{"airport":%s,"departure":%q,"delay":5}`, airport, now.Format(time.RFC3339))
		events = append(events, &sluice.Event{Sequence: int64(i), Enqueued: now, Body: []byte(body)})
	}
	if err := r.apply(t.Context(), sluice.Batch{Partition: "0", Events: events}); err != nil || r.stats != (RollupStats{Counted: 2, Filtered: 2, Malformed: 1}) {
		t.Errorf("%+v, %v", r.stats, err)
	}
}
