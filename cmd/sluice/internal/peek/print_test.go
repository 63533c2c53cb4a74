package peek

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/jsonscan"
	"github.com/sluice-go/sluice/stamp"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// printed is how an event is printed.
func printed(t *testing.T, p Printer, s Seen) string {
	t.Helper()
	var b strings.Builder
	p.Out = &b
	if err := p.WriteEvent(s, noon); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// asSent is an event without a decoder.
func asSent(e driver.Event) Seen { return Seen{Event: &e, Decoded: &e} }

func TestPrint(t *testing.T) {
	e := driver.Event{Partition: "3", Sequence: 1204, Offset: "81920", Enqueued: noon.Add(-90 * time.Second), Key: "LAX", ContentType: "application/json",
		MessageID: "m-1", Properties: map[string]any{"b": int64(2), "a": "x", "c": []byte{0xff, 0}}, Body: []byte(`{"n":1.50,"list":[1,2]}`)}
	want := `partition 3  sequence 1204  offset 81920  enqueued 2026-01-31 11:58:30.000Z (1m30s ago)
key          LAX
content type application/json
message id   m-1
property     a = x
property     b = 2
property     c = ff 00
body         23 bytes of JSON
  {
    "n": 1.50,
    "list": [
      1,
      2
    ]
  }
`
	if got := printed(t, Printer{Width: 100}, asSent(e)); got != want {
		t.Errorf("printed\n%s", got)
	}
	decoded := e
	decoded.Body = []byte("plain")
	if got := printed(t, Printer{}, Seen{Event: &e, Decoded: &decoded}); !strings.Contains(got, "body         5 bytes of text, decoded from 23\n  plain\n") {
		t.Errorf("printed\n%s", got)
	}
	broken := e
	broken.Body = []byte("\x1f\x8bbroken" + strings.Repeat("z", 100))
	got := printed(t, Printer{}, Seen{Event: &broken, Err: errors.New("decompress the body: gzip: no header")})
	for _, part := range []string{"body         108 bytes, which cannot be decoded:\n  decompress the body: gzip: no header\n  0000  1f 8b 62 72", "  … 44 bytes more: --full shows all\n", "It is gzip: source.format: {compression: gzip} reads it."} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
	for body, what := range map[string]string{"": "empty", "\x00": "1 byte\n"} {
		if got := printed(t, Printer{}, asSent(driver.Event{Body: []byte(body)})); !strings.Contains(got, "body         "+what) {
			t.Errorf("printed\n%s", got)
		}
	}
	if got := printed(t, Printer{}, asSent(driver.Event{EmptyKey: true})); !strings.Contains(got, "key") || !strings.Contains(got, "body         null") {
		t.Errorf("printed\n%s", got)
	}
}

func TestPrintStamp(t *testing.T) {
	e := driver.Event{Properties: map[string]any{"other": "1", "sluice-id": "bad"}}
	if got := printed(t, Printer{}, asSent(e)); strings.Contains(got, "stamp  ") || !strings.Contains(got, "property     sluice-id = bad\n") {
		t.Errorf("printed\n%s", got)
	}
	mark := stamp.Stamp{ID: stamp.CausationID{Source: "clean", Partition: "1", Sequence: 7}, Epoch: 3, Low: 5, Redrive: true}
	mark.SetTo(e.Properties)
	got := printed(t, Printer{}, asSent(e))
	if want := fmt.Sprintf("stamp        %v, epoch 3, watermark 5, of a redrive\nproperty     other = 1\nbody", mark.ID); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

func TestPrintCuts(t *testing.T) {
	var list []string
	for i := range 50 {
		list = append(list, fmt.Sprintf(`"%d %s"`, i, strings.Repeat("long ", 100)))
	}
	e := driver.Event{Partition: "0", Enqueued: noon.Add(-50 * time.Hour), Key: strings.Repeat("k", 300), Properties: map[string]any{"p": strings.Repeat("é", 500)}, Body: []byte("[" + strings.Join(list, ",") + "]")}
	for _, width := range []int{0, 20, 40, 80, 200} {
		got := printed(t, Printer{Width: width}, asSent(e))
		for line := range strings.Lines(got) {
			most := max(width, 35) // no part of the first line is cut
			if width == 0 {
				most = mostColumn + nameWidth + 1
			}
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > most {
				t.Errorf("width %d: %d characters in %s", width, n, line)
			}
		}
		if !strings.Contains(got, "… 32 lines more: --full shows all") || !strings.Contains(got, "2 days ago") {
			t.Errorf("width %d:\n%s", width, got)
		}
	}
	if got := printed(t, Printer{Width: 40, Full: true}, asSent(e)); strings.Contains(got, "…") || !strings.Contains(got, e.Key) || !strings.Contains(got, "49 long") {
		t.Errorf("in full:\n%.1000s", got)
	}
	if got := printed(t, Printer{Width: 40, Full: true}, asSent(driver.Event{Body: bytes.Repeat([]byte{0xfe}, 1000)})); !strings.Contains(got, "03e0") {
		t.Errorf("in full:\n%.1000s", got)
	}
}

// hostile has what must not reach a terminal.
const hostile = "\x1b[2J\x1b]0;owned\x07\r\b\u009b31m\u202e\u2028\nsequence 1\tx"

func TestPrintEscapes(t *testing.T) {
	e := driver.Event{Partition: hostile, Offset: hostile, Key: hostile, ContentType: hostile, MessageID: hostile, CorrelationID: hostile,
		Properties: map[string]any{hostile: hostile, "b": []byte(hostile)}, Enqueued: noon}
	quoted, err := json.Marshal(map[string]string{"k": hostile})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{hostile, string(quoted), "\x00" + hostile, strings.ReplaceAll(hostile, "\n", "")} {
		e.Body = []byte(body)
		for _, s := range []Seen{asSent(e), {Event: &e, Err: errors.New("cannot: " + hostile)}} {
			for _, p := range []Printer{{}, {Width: 30}, {Full: true}} {
				got := printed(t, p, s)
				for _, r := range got {
					if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
						t.Fatalf("%U is in %q", r, got)
					}
				}
				if strings.Contains(got, "\nsequence 1") {
					t.Errorf("a value begins a line:\n%s", got)
				}
			}
		}
	}
}

func TestDeepJSONIsNotIndented(t *testing.T) {
	body := []byte(strings.Repeat("[", 9000) + strings.Repeat("[],", 100_000) + "[]" + strings.Repeat("]", 9000))
	if got := jsonscan.Indent(body); len(got) != len(body) {
		t.Errorf("%d bytes of %d", len(got), len(body))
	}
	quoted := []byte(`{"a":"` + strings.Repeat("[", 100) + `\"{"}`)
	if got := jsonscan.Indent(quoted); !bytes.Contains(got, []byte("\n")) {
		t.Errorf("not indented: %s", got)
	}
}

func TestGuess(t *testing.T) {
	for body, want := range map[string]string{
		"\x1f\x8b\x08":              "gzip",
		"\x28\xb5\x2f\xfd\x00":      "zstd",
		"Obj\x01\x04":               "an Avro file",
		"\xc3\x01\x01\x02":          "single-object",
		"\x00\x00\x00\x00\x07\x02a": "schema id 7 of a registry",
		"\x00\x00\x00\x00\x00\x02a": "without a schema id",
		"\x06abc\x00":               "without a schema id",
		"\xff\xfea\x00":             "UTF-16",
		"BZh is a text":             "",
		`{"a":1}`:                   "",
		"text":                      "",
		"":                          "",
	} {
		if got := guess(&driver.Event{Body: []byte(body)}); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %s", body, got)
		}
	}
	if got := guess(&driver.Event{ContentType: "avro/binary+0a1b", Body: []byte("\x02a")}); !strings.Contains(got, "0a1b of Azure Schema Registry") {
		t.Error(got)
	}
	if got := guess(&driver.Event{Properties: map[string]any{"sluice-claim-check": "1"}, Body: []byte("{}")}); !strings.Contains(got, "source.claim_check") {
		t.Error(got)
	}
}

func TestLinesOfJSON(t *testing.T) {
	for name, c := range map[string]struct {
		seen Seen
		want string
	}{
		"json": {asSent(driver.Event{Partition: "1", Sequence: 2, Offset: "3", Enqueued: noon, Key: "k", Body: []byte("{\"n\": 12345678901234567890.10,\n\"h\":\"<b>\"}")}),
			`{"partition":"1","sequence":2,"offset":"3","enqueued":"2026-01-31T12:00:00Z","key":"k","body":{"n":12345678901234567890.10,"h":"<b>"}}`},
		"text":   {asSent(driver.Event{Body: []byte("a\nb\x1b")}), `{"partition":"","sequence":0,"body_text":"a\nb\u001b"}`},
		"quoted": {asSent(driver.Event{Body: []byte(`"a"`)}), `{"partition":"","sequence":0,"body":"a"}`},
		"empty":  {asSent(driver.Event{Body: []byte{}}), `{"partition":"","sequence":0,"body_text":""}`},
		"null":   {asSent(driver.Event{}), `{"partition":"","sequence":0,"body":null}`},
		"binary": {asSent(driver.Event{Body: []byte{0xff, 0}, Key: "\xff"}), `{"partition":"","sequence":0,"key":{"base64":"/w=="},"body_base64":"/wA="}`},
		"not decoded": {Seen{Event: &driver.Event{Body: []byte("{}")}, Err: errors.New("why")},
			`{"partition":"","sequence":0,"body":{},"decode_error":"why"}`},
		"properties": {asSent(driver.Event{EmptyKey: true, Body: []byte{}, Properties: map[string]any{"a": int32(1), "b": math.NaN(), "c": noon, "d": []byte{0xff}, "e": nil, "f": true, "g": [2]byte{1, 2}}}),
			`{"partition":"","sequence":0,"key":"","properties":{"a":1,"b":"NaN","c":"2026-01-31T12:00:00Z","d":{"base64":"/w=="},"e":null,"f":true,"g":"[1 2]"},"body_text":""}`},
		"headers": {asSent(driver.Event{Body: []byte{}, Headers: []driver.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: nil}}}),
			`{"partition":"","sequence":0,"properties":{"a":null},"headers":[{"name":"a","value":"1"},{"name":"a","value":null}],"body_text":""}`},
		"late": {asSent(driver.Event{Enqueued: time.Date(57000, 1, 1, 0, 0, 0, 0, time.UTC), Body: []byte{}}), `{"partition":"","sequence":0,"body_text":""}`},
	} {
		var b strings.Builder
		if err := WriteJSON(&b, c.seen); err != nil || b.String() != c.want+"\n" {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

// Headers that are AMQP values are shown as what they are, where the driver has decoded them.
func TestPropertiesOfAMQPHeaders(t *testing.T) {
	headers := []driver.Header{{Name: "a", Value: []byte("\xa1\x06device")}, {Name: "b", Value: []byte("US")}, {Name: "c", Value: []byte("US")}, {Name: "d"}}
	got := fmt.Sprint(properties(&driver.Event{Headers: headers, Properties: map[string]any{"a": "device", "b": int64(83), "c": "US", "d": nil}}))
	if want := "[{a device} {b 83} {c [85 83]} {d <nil>}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// An event that the driver could not decode is shown as what the log holds, with the reason.
func TestUndecodableIsShown(t *testing.T) {
	e := &driver.Event{Body: []byte{0, 0x53, 0x75}, Undecodable: "no map"}
	decoded, err := (*Decoder)(nil).event(t.Context(), e)
	if decoded != nil || err == nil || err.Error() != "the event cannot be decoded (no map)" {
		t.Errorf("%v, %v", decoded, err)
	}
}
