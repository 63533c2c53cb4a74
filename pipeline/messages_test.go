package pipeline

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// next makes the target of a pipeline with these lines under target.eventhub.
func next(t *testing.T, lines string) *messageTarget {
	t.Helper()
	p, err := Parse("p.yaml", []byte(`
source: {eventhub: {connection: "${EVENTHUB_CONNECTION_STRING}", hub: flights}}
partitions: all
leases: {sql: "${DATABASE_URL}"}
target:
  eventhub:
    hub: clean
`+lines), environment())
	if err != nil {
		t.Fatal(err)
	}
	return targetOf[*messageTarget](p)
}

func TestBodiesOfMappedFields(t *testing.T) {
	target := next(t, `
    key: body.who
    body:
      text: body.text
      small: {from: body.n, type: integer}
      big: {from: body.big, type: bigint}
      numeric: {from: body.numeric, type: numeric}
      double: {from: body.double, type: double}
      yes: {from: body.yes, type: boolean}
      at: {from: body.at, type: timestamp}
      bytes: {from: body.bytes, type: bytes}
      json: {from: body.json, type: json}
      "odd \"name\"": {from: body.none, required: false}
      whole: {from: body, type: json}
      n: sequence
`)
	body := `{"who":"SAN","text":"a \"b\" ü","n":"7","big":9223372036854775807,"numeric":1.50,"double":1e3,"yes":true,"at":"2026-01-31T10:30:00.5+02:00","bytes":"AP8=","json":{"a":[1]}}`
	messages, err := target.messages(t.Context(), &sluice.Event{Partition: "0", Sequence: 12, Key: "other", MessageID: "m", Body: []byte(body)})
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	m := messages[0]
	want := `{"text":"a \"b\" ü","small":7,"big":9223372036854775807,"numeric":1.50,"double":1000,"yes":true,"at":"2026-01-31T08:30:00.5Z","bytes":"AP8=","json":{"a":[1]},"odd \"name\"":null,"whole":` + body + `,"n":12}`
	if string(m.Body) != want || !json.Valid(m.Body) {
		t.Errorf("got  %s\nwant %s", m.Body, want)
	}
	if m.Key != "SAN" || m.ContentType != "application/json" || m.MessageID != "" || m.Properties != nil {
		t.Errorf("message %+v", m)
	}
}

func TestBodiesAsTheyAre(t *testing.T) {
	e := &sluice.Event{
		Sequence: 12, Enqueued: time.Now(), Key: "k", MessageID: "m", CorrelationID: "c", ContentType: "text/plain",
		Properties: map[string]any{"a": int64(1)}, Body: []byte("no JSON"),
	}
	messages, err := next(t, "").messages(t.Context(), e)
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	m := messages[0]
	if m.Key != "k" || m.MessageID != "m" || m.CorrelationID != "c" || m.ContentType != "text/plain" || string(m.Body) != "no JSON" || !reflect.DeepEqual(m.Properties, e.Properties) {
		t.Errorf("message %+v", m)
	}
	m.Properties["sluice-id"] = "stamped"
	if len(e.Properties) != 1 {
		t.Error("stamping the message has changed the event")
	}
	messages, err = next(t, "    key: properties.a\n").messages(t.Context(), e)
	if err != nil || messages[0].Key != "1" || string(messages[0].Body) != "no JSON" {
		t.Errorf("by property: %+v, %v", messages, err)
	}
}

func TestMessagesThatCannotBeMade(t *testing.T) {
	for lines, want := range map[string]string{
		"    key: body.who\n":                             "body: ",
		"    key: key\n":                                  "field key: key: is missing",
		"    key: properties.long\n":                      "key: properties.long: has more than 128 characters",
		"    body: {n: {from: offset, type: bigint}}\n":   `field n: offset: "x" where a whole number should be`,
		"    body: {n: {from: properties.a, type: text}}": "field n: properties.a: is missing",
	} {
		e := &sluice.Event{Body: []byte("no JSON"), Offset: "x", Properties: map[string]any{"long": strings.Repeat("ü", 129)}}
		if _, err := next(t, lines).messages(t.Context(), e); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", lines, err, want)
		}
	}
}
