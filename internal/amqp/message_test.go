package amqp

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	other "github.com/Azure/go-amqp"
)

// A message with every section, made by another implementation.
func foreign(t testing.TB) []byte {
	t.Helper()
	when := time.UnixMilli(1700000000123).UTC()
	text := "text"
	m := &other.Message{
		Header:              &other.MessageHeader{Durable: true, Priority: 9},
		DeliveryAnnotations: other.Annotations{"d": int64(1)},
		Annotations:         other.Annotations{"x-opt-partition-key": "k", "own": "mine", "n": uint64(7)},
		Properties: &other.MessageProperties{
			MessageID: "id", UserID: []byte("u"), To: &text, Subject: &text, ReplyTo: &text, CorrelationID: other.UUID{1, 2}, ContentType: &text,
			CreationTime: &when, GroupSequence: new(uint32),
		},
		ApplicationProperties: map[string]any{"i": int32(-5), "s": "x", "t": when},
		Data:                  [][]byte{[]byte("one"), bytes.Repeat([]byte("x"), 1000)},
		Footer:                other.Annotations{"f": true},
	}
	b, err := m.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSections(t *testing.T) {
	b := foreign(t)
	var codes, joined []byte
	var data []string
	pairs := map[string]string{}
	for rest := b; len(rest) > 0; {
		s, after, err := NextSection(rest)
		if err != nil {
			t.Fatal(err)
		}
		codes, joined, rest = append(codes, s.Code), append(joined, s.Raw...), after
		switch s.Code {
		case SectionData:
			data = append(data, string(s.Data()))
		case SectionMessageAnnotations:
			s.Pairs(func(p RawPair) bool {
				text, ok := DecodeText(p.Value)
				if !ok {
					text = "not text"
				}
				pairs[p.Key] = text
				return true
			})
		}
	}
	if want := []byte{0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x75, 0x78}; !bytes.Equal(codes, want) {
		t.Errorf("sections % x, want % x", codes, want)
	}
	if !bytes.Equal(joined, b) {
		t.Error("the sections don't add up to the message")
	}
	if len(data) != 2 || data[0] != "one" || data[1] != strings.Repeat("x", 1000) {
		t.Errorf("data %.100q", data)
	}
	if want := map[string]string{"x-opt-partition-key": "k", "own": "mine", "n": "not text"}; !reflect.DeepEqual(pairs, want) {
		t.Errorf("annotations %v", pairs)
	}
}

func TestRequestsAndReplies(t *testing.T) {
	req, err := ParseMessage(foreign(t))
	if err != nil {
		t.Fatal(err)
	}
	if req.MessageID != "id" || req.ReplyTo != "text" || req.Properties.String("s") != "x" || req.Properties.Get("i") != int32(-5) ||
		req.CorrelationID != (UUID{1, 2}) || req.Value != nil {
		t.Errorf("request %+v", req)
	}
	// What this package encodes, the other implementation must understand.
	when := time.UnixMilli(1700000000123)
	b := (&Message{
		CorrelationID: "id", ReplyTo: "there", Properties: Map{{"status-code", int32(200)}, {"status-description", "OK"}},
		Value: Map{{"ids", []string{"0", "1"}}, {"at", when}, {"n", int64(-1)}, {"big", int64(1) << 40}, {"none", nil}, {"b", false}},
	}).Encode(nil)
	var m other.Message
	if err := m.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if m.Properties.CorrelationID != "id" || *m.Properties.ReplyTo != "there" || m.Properties.MessageID != nil {
		t.Errorf("properties %+v", m.Properties)
	}
	if want := map[string]any{"status-code": int32(200), "status-description": "OK"}; !reflect.DeepEqual(m.ApplicationProperties, want) {
		t.Errorf("application properties %v", m.ApplicationProperties)
	}
	want := map[string]any{"ids": []string{"0", "1"}, "at": when, "n": int64(-1), "big": int64(1) << 40, "none": nil, "b": false}
	if !reflect.DeepEqual(m.Value, want) {
		t.Errorf("value %#v, want %#v", m.Value, want)
	}
	back, err := ParseMessage(b)
	if err != nil || back.CorrelationID != "id" || back.MessageID != nil {
		t.Errorf("parsed again: %+v, %v", back, err)
	}
}

func TestMapHeader(t *testing.T) {
	for _, n := range []int{0, 1, 3, 5, 40, 127, 128, 1000} {
		for _, width := range []int{0, 1, 50, 300} {
			var entries []byte
			var want Map
			for i := range n {
				p := Pair{int64(i % 100), strings.Repeat("x", width)}
				want = append(want, p)
				entries = AppendValue(AppendValue(entries, p.Key), p.Value)
			}
			d := decoder{buf: append(AppendMapHeader(nil, n, len(entries)), entries...)}
			got, _ := d.value().(Map)
			if d.err != nil || len(d.rest()) != 0 || len(got) != n || n > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%d entries of width %d: %d entries, %v", n, width, len(got), d.err)
			}
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	for name, b := range map[string]string{
		"no section":                 "garbage",
		"performative":               "\x00\x53\x10\x45",
		"section cut short":          "\x00\x53\x75\xa0\x05abc",
		"data that isn't binary":     "\x00\x53\x75\xa1\x01a",
		"annotations that are list":  "\x00\x53\x72\x45",
		"properties that are map":    "\x00\x53\x73\xc1\x01\x00",
		"unknown section name":       "\x00\xa3\x03foo\x45",
		"message id beyond its list": "\x00\x53\x73\xc0\x02\x01\xa1",
		"odd application properties": "\x00\x53\x74\xc1\x03\x01\xa1\x00",
		"descriptor only":            "\x00\x53\x77",
	} {
		if m, err := ParseMessage([]byte(b)); err == nil {
			t.Errorf("%s: parsed as %+v", name, m)
		}
	}
	if _, _, err := NextSection([]byte("\x00\xa3\x10amqp:data:binary\xa0\x01a")); err != nil {
		t.Errorf("a section by its symbolic name: %v", err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(foreign(f))
	f.Add((&Message{MessageID: uint64(1), Value: Map{{"a", List{}}}}).Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseMessage(b); err == nil {
			encoded := m.Encode(nil)
			if again, err := ParseMessage(encoded); err != nil || !bytes.Equal(again.Encode(nil), encoded) {
				t.Fatalf("%+v became %+v, %v", m, again, err)
			}
		}
		for rest := b; len(rest) > 0; {
			s, after, err := NextSection(rest)
			if err != nil {
				return
			}
			if len(s.Raw)+len(after) != len(rest) {
				t.Fatal("a section that isn't the start of its message")
			}
			switch s.Code {
			case SectionMessageAnnotations:
				s.Pairs(func(p RawPair) bool { DecodeText(p.Value); return true })
			case SectionData:
				s.Data()
			}
			rest = after
		}
	})
}
