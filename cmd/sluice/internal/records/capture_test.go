package records_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/driver"
)

// captureSchema is that of Event Hubs Capture,
// https://learn.microsoft.com/azure/event-hubs/explore-captured-avro-files
const captureSchema = `{"type":"record","name":"EventData","namespace":"Microsoft.ServiceBus.Messaging","fields":[
	{"name":"SequenceNumber","type":"long"},{"name":"Offset","type":"string"},{"name":"EnqueuedTimeUtc","type":"string"},
	{"name":"SystemProperties","type":{"type":"map","values":["long","double","string","bytes"]}},
	{"name":"Properties","type":{"type":"map","values":["long","double","string","bytes","null"]}},
	{"name":"Body","type":["null","bytes"]}]}`

type capturedEvent struct {
	SequenceNumber               int64
	Offset, EnqueuedTimeUtc      string
	SystemProperties, Properties map[string]any
	Body                         []byte
}

func capturedFile(t testing.TB, events ...*capturedEvent) []byte {
	t.Helper()
	var b bytes.Buffer
	schema, err := avro.Parse(captureSchema)
	if err != nil {
		t.Fatal(err)
	}
	w, err := ocf.NewWriter(&b, schema, ocf.WithCodec(ocf.DeflateCodec(6)), ocf.WithBlockCount(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := w.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCapture(t *testing.T) {
	file := capturedFile(t,
		&capturedEvent{7, "4294967296", "6/13/2026 5:54:12 PM", map[string]any{"x-opt-partition-key": "LAX", "content-type": "text/plain", "message-id": "m", "x-opt-sequence-number": int64(7)},
			map[string]any{"n": int64(5), "f": 1.5, "s": "x", "b": []byte{0, 255}, "none": nil}, []byte("no JSON \x00\xff")},
		&capturedEvent{SequenceNumber: 8, EnqueuedTimeUtc: "12/1/2026 12:00:00 AM", Body: nil},
		&capturedEvent{SequenceNumber: 9, EnqueuedTimeUtc: "yesterday"},
		&capturedEvent{SequenceNumber: 10, EnqueuedTimeUtc: "2026-06-13T17:54:12.5Z", Body: []byte("{}")},
		&capturedEvent{SequenceNumber: 11, EnqueuedTimeUtc: "2026-06-13T17:54:12.5", Body: make([]byte, records.MaxSize+1)})
	r := records.NewReader(bytes.NewReader(file), "in.avro", nil)
	var got []*driver.Event
	var refused []string
	for {
		record, err := r.Next()
		var rejected *records.RejectedError
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.As(err, &rejected) {
			refused = append(refused, err.Error())
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(record.Body, record.Event.Body) {
			t.Errorf("body %q of event %q", record.Body, record.Event.Body)
		}
		got = append(got, record.Event)
	}
	want := []*driver.Event{
		{Partition: "0", Sequence: 7, Offset: "4294967296", Key: "LAX", ContentType: "text/plain", MessageID: "m", Enqueued: time.Date(2026, 6, 13, 17, 54, 12, 0, time.UTC),
			Properties: map[string]any{"n": int64(5), "f": 1.5, "s": "x", "b": []byte{0, 255}, "none": nil}, Body: []byte("no JSON \x00\xff")},
		{Partition: "0", Sequence: 8, Enqueued: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		{Partition: "0", Sequence: 10, Enqueued: time.Date(2026, 6, 13, 17, 54, 12, 5e8, time.UTC), Body: []byte("{}")},
	}
	for i, e := range want {
		if e.Properties == nil {
			e.Properties = map[string]any{}
		}
		if i < len(got) && !reflect.DeepEqual(got[i], e) {
			t.Errorf("event %d\ngot  %+v\nwant %+v", i, got[i], e)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d events, want %d", len(got), len(want))
	}
	if all := strings.Join(refused, "\n"); all != "in.avro: event 3: EnqueuedTimeUtc is \"yesterday\", which is no known spelling of a time\nin.avro: event 5: too large (4194305 bytes)" {
		t.Errorf("refused\n%s", all)
	}
}

// A file that is cut off ends with an error, and another Avro file is refused by name.
func TestCaptureIsWhole(t *testing.T) {
	file := capturedFile(t, &capturedEvent{EnqueuedTimeUtc: "2026-06-13T17:54:12Z", Body: []byte("{}")}, &capturedEvent{EnqueuedTimeUtc: "2026-06-13T17:54:12Z"})
	ends := 0 // without an error: after the header alone
	for n := len("Obj\x01"); n < len(file); n++ {
		r := records.NewReader(bytes.NewReader(file[:n]), "in", nil)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if errors.Is(err, io.EOF) {
			ends++
		}
	}
	if ends != 1 {
		t.Errorf("%d beginnings of the file look whole, want 1", ends)
	}
	schema, err := avro.Parse(`{"type":"record","name":"Flight","fields":[{"name":"delay","type":"long"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := ocf.NewWriter(&b, schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := records.Check(&b, "in", nil); err == nil || !strings.Contains(err.Error(), "in: Avro, but not of Event Hubs Capture (it has no SequenceNumber)") {
		t.Error(err)
	}
}
