package formats_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/pipeline/formats"
	"github.com/sluice-go/sluice/sluicetest"
)

type place struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

const placeSchema = `{"type": "record", "name": "place", "fields": [{"name": "name", "type": "string"}, {"name": "size", "type": "int"}]}`

func placeDecoder(t testing.TB) *formats.Decoder {
	t.Helper()
	schema, err := formats.ParseAvro(placeSchema)
	if err != nil {
		t.Fatal(err)
	}
	return formats.New(&formats.Config{Encoding: formats.Avro(schema)})
}

// A handler in Go gets bodies of Avro as JSON. An event that does not decode is a dead letter with
// the reason; its neighbours are handled.
func TestDecodedHandler(t *testing.T) {
	var got []place
	handler := formats.Decoded(placeDecoder(t), sluice.Typed(func(_ context.Context, _ *sluicetest.Tx, e *sluice.Event, p place) error {
		if e.ContentType != "application/json" {
			t.Errorf("the content type is %q", e.ContentType)
		}
		got = append(got, p)
		return nil
	}))
	bodies := []string{"\x04Ny\x06", "no record", "\x04LA\x08"}
	var events []*sluice.Event
	for i, body := range bodies {
		events = append(events, &sluice.Event{Partition: "0", Sequence: int64(i), Body: []byte(body)})
	}
	err := handler(t.Context(), nil, sluice.Batch{Partition: "0", Events: events})
	var of *driver.EventError
	if !errors.As(err, &of) || of.Index != 1 || !errors.Is(err, driver.ErrRejected) || !strings.Contains(err.Error(), "decode the body") {
		t.Fatalf("got %v, want that event 1 is rejected", err)
	}
	if got != nil {
		t.Errorf("handled %v beside an event that does not decode", got)
	}
	if err := handler(t.Context(), nil, sluice.Batch{Partition: "0", Events: []*sluice.Event{events[0], events[2]}}); err != nil {
		t.Fatal(err)
	}
	if want := []place{{"Ny", 3}, {"LA", 4}}; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	if events[0].ContentType != "" || string(events[0].Body) != bodies[0] {
		t.Error("the event itself was changed")
	}
}

// A registry that does not answer is an outage, never the event's fault.
func TestDecodedWithoutTheRegistry(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer server.Close()
	registry, err := formats.NewConfluent(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := formats.New(&formats.Config{Encoding: formats.AvroFrom(registry, nil)})
	event := &sluice.Event{Body: []byte("\x00\x00\x00\x00\x01x")}
	records := formats.DecodedRecords(d, func(context.Context, *driver.Event) ([]int, error) { return []int{1}, nil })
	if _, err := records(t.Context(), event); !errors.Is(err, driver.ErrOutage) || errors.Is(err, driver.ErrRejected) {
		t.Errorf("records: %v, want an outage", err)
	}
	handler := formats.Decoded(d, func(context.Context, int, sluice.Batch) error { return nil })
	if err := handler(t.Context(), 0, sluice.Batch{Events: []*sluice.Event{event}}); !errors.Is(err, driver.ErrOutage) || errors.Is(err, driver.ErrRejected) {
		t.Errorf("handler: %v, want an outage", err)
	}
}

func TestDecodedRecords(t *testing.T) {
	records := formats.DecodedRecords(placeDecoder(t), func(_ context.Context, e *driver.Event) ([]place, error) {
		var p place
		return []place{p}, json.Unmarshal(e.Body, &p)
	})
	if _, err := records(t.Context(), &sluice.Event{Body: []byte("x")}); !errors.Is(err, driver.ErrRejected) {
		t.Errorf("a body that does not decode: %v, want a rejection", err)
	}
}
