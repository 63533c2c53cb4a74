package guess

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/newfile"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/pipeline"
)

// eventsOf are events of a log with these bodies.
func eventsOf(bodies ...string) *Log {
	l := &Log{Name: "hub flights"}
	for i, b := range bodies {
		l.Events = append(l.Events, &sluice.Event{Partition: "0", Sequence: int64(i), Body: []byte(b)})
	}
	return l
}

// each changes all events.
func (l *Log) each(change func(i int, e *sluice.Event)) *Log {
	for i, e := range l.Events {
		change(i, e)
	}
	return l
}

func repeated(n int, templates ...string) (list []string) {
	for i := range n {
		for _, t := range templates {
			list = append(list, strings.ReplaceAll(t, "#", fmt.Sprint(i)))
		}
	}
	return list
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

func config() *Config {
	return &Config{Name: "flights", System: pipeline.EventHubs, Choice: newfile.Choice{Source: "eventhub", Target: "insert", Database: "sqlite", Partitions: "all"}}
}

// guessed returns the file for samples, and what became of them.
func guessed(t *testing.T, samples Samples, cfg *Config) (text string, g *Guess, tried *Tried) {
	t.Helper()
	g, err := Make(t.Context(), samples, cfg)
	if err != nil {
		t.Fatal(err)
	}
	text = newfile.Text(cfg.Name, g.Choice)
	if tried, err = Try(t.Context(), samples, cfg, text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text, g, tried
}

const change = `{"before":null,"after":{"id":#,"name":"n#"},"source":{"connector":"postgresql","table":"t","ts_ms":1},"op":"c","ts_ms":2}`

func TestBodies(t *testing.T) {
	object := repeated(20, `{"id":#}`)
	pack := func(_ int, e *sluice.Event) { e.Body = zipped(e.Body) }
	frame := func(_ int, e *sluice.Event) { e.Body = append([]byte{0, 0, 0, 0, 7}, e.Body...) }
	named := func(i int, e *sluice.Event) {
		if i%2 == 0 {
			e.Body, e.Properties = zipped(e.Body), map[string]any{"content-encoding": "gzip"}
		}
	}
	deflated := func(_ int, e *sluice.Event) {
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, _ = w.Write(e.Body)
		_ = w.Close()
		e.Body, e.Properties = b.Bytes(), map[string]any{"content-encoding": "deflate"}
	}
	changes := func(i int, e *sluice.Event) { e.Key = fmt.Sprintf(`{"id":%d}`, i) }
	for _, c := range []struct {
		name    string
		samples *Log
		kafka   bool
		want    []string // parts of the file
		not     string   // which is no part of it
		dead    int
	}{
		{"JSON", eventsOf(object...), false, []string{"id: {from: body.id, type: bigint, required: false} # 0"}, "format", 0},
		{"gzip", eventsOf(object...).each(pack), false, []string{"format: {compression: gzip}", "id: {from: body.id"}, "routes", 0},
		{"gzip by name", eventsOf(object...).each(named), false, []string{"format: {compression: auto}", "id: {from: body.id"}, "routes", 0},
		{"deflate", eventsOf(object...).each(deflated), false, []string{"format: {compression: auto}", "id: {from: body.id"}, "routes", 0},
		{"a registry", eventsOf(object...).each(frame), false, []string{"# The bodies are JSON after the id of a schema (such as 7)", "body: {from: body, type: bytes}"}, "\n  format", 0},
		{"Avro of a registry", eventsOf(repeated(9, "\x00\x00\x00\x00\x07\x02\xff#")...), false, []string{"encoding: avro, registry: {confluent", "body: {from: body, type: bytes}"}, "\n  format", 0},
		{"bytes", eventsOf(repeated(9, "\xff#")...), false, []string{"body: {from: body, type: bytes}"}, "format", 0},
		{"text", eventsOf(repeated(9, "a #")...), false, []string{"body: {from: body, type: text}"}, "format", 0},
		{"arrays", eventsOf(repeated(9, "[#]")...), false, []string{"body: {from: body, type: json}"}, "format", 0},
		{"some are no JSON", eventsOf(append(object, "no JSON", "{")...), false, []string{"id: {from: body.id"}, "format", 2},
		{"Debezium", eventsOf(repeated(9, change)...).each(changes), true, []string{"format: {envelope: debezium}", "key: [id]", "id: {from: body.id, type: bigint} # 0", "name: {from: body.name, type: text, required: false}"}, "routes", 0},
		{"Debezium in the envelope of Connect", eventsOf(repeated(9, `{"schema":null,"payload":`+change+`}`)...).each(changes), true, []string{"format: {envelope: debezium}", "key: [id]"}, "routes", 0},
		{"Debezium without keys", eventsOf(repeated(9, change)...), true, []string{"format: {envelope: debezium}"}, "key:", 0},
		{"Connect", eventsOf(repeated(9, `{"schema":{"type":"struct","fields":[{"field":"id","type":"int32"}]},"payload":{"id":#}}`)...), true, []string{"format: {envelope: connect}", "id: {from: body.id"}, "key:", 0},
		{"no envelope in one", eventsOf(append(repeated(9, change), `{"id":1}`)...), true, []string{"body.after.id"}, "envelope", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			if c.kafka {
				cfg.System, cfg.Choice.Source = pipeline.Kafka, "kafka"
			}
			text, _, tried := guessed(t, c.samples, cfg)
			for _, part := range c.want {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in\n%s", part, text)
				}
			}
			if strings.Contains(text, c.not) || tried.Dead != c.dead {
				t.Errorf("%q, %+v:\n%s", c.not, tried, text)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	two := repeated(10, `{"specversion":"1.0","type":"a.b/c","x":#,"y":1,"d":{"e":1}}`, `{"specversion":"1.0","type":"2#${HOME}","z":#,"w":1}`)
	for i := range two {
		two[i] = strings.ReplaceAll(two[i], fmt.Sprintf("2%d$", i/2), "2$")
	}
	text, g, tried := guessed(t, eventsOf(two...), config())
	for _, part := range []string{"only: {body.type: [\"2$${HOME}\"]}", "only: {body.type: [a.b/c]}", "table: a_b_c\n", "table: flights_2_home\n", "e: {from: body.d.e"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if tried.Dead > 0 || tried.Rows != 20 || len(g.Tables) != 2 {
		t.Errorf("%+v\n%s", tried, text)
	}
	binary := eventsOf(repeated(10, `{"x":#,"y":1}`, `{"z":#,"w":1}`)...).each(func(i int, e *sluice.Event) {
		e.Properties = map[string]any{"cloudEvents:type": []string{"one", "two"}[i%2], "tenant": "t"}
	})
	if text, _, tried = guessed(t, binary, config()); !strings.Contains(text, "only: {type: [one]}") || tried.Dead > 0 {
		t.Errorf("%+v\n%s", tried, text)
	}
	cfg := config()
	cfg.Table = "all_events"
	if text, _, tried = guessed(t, binary, cfg); strings.Contains(text, "routes") || !strings.Contains(text, "table: all_events") || tried.Dead > 0 {
		t.Errorf("one table is wanted: %+v\n%s", tried, text)
	}
}

// Whatever events have, the file is valid, and their rows are made.
func TestHostileEvents(t *testing.T) {
	r := need.Rand(t)
	for range 400 {
		var bodies []string
		keys := make([]string, 1+r.IntN(6))
		for i := range keys {
			keys[i] = hostile(r)
		}
		for range 1 + r.IntN(20) {
			bodies = append(bodies, string(document(r, keys, 0)))
		}
		cfg := config()
		cfg.Name = hostile(r)
		cfg.Choice.Source = newfile.Sources[r.IntN(len(newfile.Sources))]
		cfg.Choice.Database = newfile.Databases[r.IntN(len(newfile.Databases))]
		if r.IntN(2) == 0 {
			cfg.Choice.Filled = &newfile.Filled{Log: &newfile.Log{Name: "h-1", Namespace: "n.servicebus.windows.net", Brokers: "a:1, b:2", Group: "g"}}
		}
		samples := eventsOf(bodies...)
		samples.Name = hostile(r)
		if text, _, tried := guessed(t, samples, cfg); tried.Dead > 0 {
			t.Fatalf("%q: %+v\n%s", bodies, tried, text)
		}
	}
}

var pieces = []string{"a", "b", "type", "Time", "é", "漢", " ", "#", " #", ": ", "- ", "\"", "'", "\\", "${", "${HOME}", "$${", "}", "{", "[", "]", ",", "\n", "\r\n", "\t", "\x00", "\u0085", "\u2028",
	"\ufeff", "\ufffd", "\U0001f600", "%", "&x", "*x", "!x", "|", ">", "@", "`", "?", "~", "null", "true", "no", "0", "1.5", "2026-07-08", "sequence_number", "sluice_", "\x1b[2J", "\x7f", "<<", "---", "..."}

func hostile(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	if r.IntN(20) == 0 {
		return strings.Repeat(b.String(), 30)
	}
	return b.String()
}

// document is an object with some of the keys.
func document(r *rand.Rand, keys []string, depth int) []byte {
	object := map[string]any{}
	for _, k := range keys {
		switch r.IntN(8) {
		case 0:
		case 1:
			object[k] = nil
		case 2:
			object[k] = r.IntN(1000)
		case 3:
			object[k] = r.Float64() * 1e20
		case 4:
			object[k] = []any{hostile(r)}
		case 5:
			if depth < 3 {
				object[k] = json.RawMessage(document(r, keys, depth+1))
			}
		default:
			object[k] = hostile(r)
		}
	}
	text, _ := json.Marshal(object)
	return text
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flights.csv")
	if err := os.WriteFile(path, zipped([]byte("id,at\n1,2026-07-08 21:04:05\n2,\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _, tried := guessed(t, f, config())
	if !strings.Contains(text, "at: {from: body.at, type: timestamp, zone: UTC, required: false}") || tried.Rows != 2 || f.Description() != "2 records of flights.csv" {
		t.Errorf("%s: %+v\n%s", f.Description(), tried, text)
	}
	f.most = 1
	if _, _, tried = guessed(t, f, config()); tried.Rows != 1 || f.Description() != "the first 1 record of flights.csv" {
		t.Errorf("%s: %+v", f.Description(), tried)
	}
	if f, err = OpenFile("-", strings.NewReader(`{"a":1}`+"\n{\n"+`{"a":2}`), nil); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, tried = guessed(t, f, config()); tried.Events != 2 || f.Rejected != 1 || f.Why == nil {
		t.Errorf("%+v, rejected %d: %v", tried, f.Rejected, f.Why)
	}
	if _, err := Make(t.Context(), eventsOf(), config()); err == nil {
		t.Error("nothing is enough to guess from")
	}
}
