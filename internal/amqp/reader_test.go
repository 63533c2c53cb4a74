package amqp

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The reader's typed reads take values of their types, in every width, and leave others in place.
func TestReader(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		read      func(r *Reader) (any, bool)
		want      any
	}{
		{"byte", "51ff", readInt, int64(-1)},
		{"short", "61fffe", readInt, int64(-2)},
		{"smallint", "54fd", readInt, int64(-3)},
		{"int", "71fffffffc", readInt, int64(-4)},
		{"smalllong", "55fb", readInt, int64(-5)},
		{"long", "81fffffffffffffffa", readInt, int64(-6)},
		{"ulong is no signed integer", "8000000000000000ff", readInt, nil},
		{"timestamp", "83000001311 7fc43c8", readTime, time.UnixMilli(0x13117fc43c8).UTC()},
		{"long is no timestamp", "8100000000000000ff", readTime, nil},
		{"str8", "a1026869", readText, "hi"},
		{"str32", "b1000000026869", readText, "hi"},
		{"sym8", "a3026869", readText, "hi"},
		{"sym32", "b3000000026869", readText, "hi"},
		{"text that is not UTF-8", "a101ff", readText, "\xff"},
		{"binary is no text", "a0026869", readText, nil},
		{"vbin8", "a0026869", readBinary, []byte("hi")},
		{"vbin32", "b0000000026869", readBinary, []byte("hi")},
		{"text is no binary", "a1026869", readBinary, nil},
		{"null", "40", func(r *Reader) (any, bool) { return nil, r.Null() }, nil},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(append(b, 0x41))
		got, ok := c.read(&r)
		if taken := c.want != nil || c.name == "null"; ok != taken || taken && (!reflect.DeepEqual(got, c.want) || r.Offset() != len(b)) || !taken && r.Offset() != 0 || r.Err() != nil {
			t.Errorf("%s: got %#v, %v, at %d, error %v", c.name, got, ok, r.Offset(), r.Err())
		}
		for n := range len(b) { // cut short
			r := NewReader(b[:n])
			if _, ok := c.read(&r); ok || c.want != nil && r.Err() == nil {
				t.Errorf("%s, %d of %d bytes: read, or no error", c.name, n, len(b))
			}
		}
		r = NewReader(append(b, 0x41))
		if r.Jump(); r.Offset() != len(b) {
			t.Errorf("%s: jumped to %d", c.name, r.Offset())
		}
	}
}

func readInt(r *Reader) (any, bool)    { return r.Int() }
func readTime(r *Reader) (any, bool)   { return r.Timestamp() }
func readBinary(r *Reader) (any, bool) { return r.Binary() }
func readText(r *Reader) (any, bool) {
	start, end, ok := r.Text()
	return string(r.d.buf[start:end]), ok
}

// A reader of a section does not read what follows it, whatever sizes the section declares.
func TestReaderStaysInside(t *testing.T) {
	b := []byte{0x00, 0x53, 0x74, 0xc1, 6, 2, 0xa1, 1, 'k', 0xa1, 100, 'v'} // the string's size is a lie
	b = append(b, make([]byte, 200)...)
	r := NewReader(b)
	if code := r.Section(); code != SectionApplicationProperties {
		t.Fatalf("section %#x", code)
	}
	start := r.Offset()
	r.Jump()
	r.Seek(start, r.Offset())
	if end, n := r.Map(); n != 1 || end != start+8 {
		t.Fatalf("%d entries, end at %d", n, end)
	}
	if _, _, ok := r.Text(); !ok {
		t.Fatal(r.Err())
	}
	if _, _, ok := r.Text(); ok || r.Err() == nil {
		t.Error("a string reaches past the end of its section")
	}
}

func TestReaderRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("\x00\x53\x01", n) + "\x40" }
	for name, c := range map[string]struct {
		in   string
		read func(r *Reader)
		want string
	}{
		"no section":           {"\x00\x53\x10", func(r *Reader) { r.Section() }, "descriptor 0x10 is not a section of a message"},
		"no descriptor":        {"\x40", func(r *Reader) { r.Section() }, "expected a described value"},
		"a list for a map":     {"\x45", func(r *Reader) { r.Map() }, "format code 0x45 in place of a map"},
		"a map for a list":     {"\xc1\x01\x00", func(r *Reader) { r.List() }, "format code 0xc1 in place of a list"},
		"half an entry":        {"\xc1\x02\x01\x40", func(r *Reader) { r.Map() }, "map of an odd number of elements"},
		"elements are missing": {"\xc0\x02\x01\x40", func(r *Reader) { end, _ := r.List(); r.Leave(end) }, "compound value ends -1 bytes off its declared size"},
		"deep":                 {deep(101), func(r *Reader) { r.Value() }, "values nested deeper than 100"},
		"deep, skipped":        {deep(101), func(r *Reader) { r.Skip() }, "values nested deeper than 100"},
		"the end":              {"", func(r *Reader) { r.Int() }, "a value is missing at the end"},
	} {
		r := NewReader([]byte(c.in))
		if c.read(&r); r.Err() == nil || !strings.Contains(r.Err().Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, r.Err(), c.want)
		}
	}
	r := NewReader([]byte(deep(100)))
	if r.Value(); r.Err() != nil {
		t.Error(r.Err())
	}
}

func TestArrayValues(t *testing.T) {
	for _, c := range []struct {
		in   Array
		want []any
	}{
		{"\xe0\x02\x00\x50", nil},
		{"\xe0\x04\x02\x50\x01\x02", []any{uint8(1), uint8(2)}},
		{"\xf0\x00\x00\x00\x07\x00\x00\x00\x02\x50\x01\x02", []any{uint8(1), uint8(2)}},
		{"\xe0\x04\x01\xa1\x01\xff", []any{"\xff"}},
		{"\xe0\x06\x01\xc0\x03\x01\x54\x07", []any{List{int32(7)}}},
		{"\xe0\x06\x01\xe0\x03\x01\x50\x07", []any{Array("\xe0\x03\x01\x50\x07")}},
		{"\xe0\x08\x02\x00\xa3\x01d\x50\x01\x02", []any{Described{Symbol("d"), uint8(1)}, Described{Symbol("d"), uint8(2)}}},
		{"\xc0\x01\x00", nil},
	} {
		if got := c.in.Values(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%x: got %#v, want %#v", c.in, got, c.want)
		}
	}
	if got, ok := Array("\xe0\x04\x02\x50\x01\x02").Bytes(); !ok || string(got) != "\x01\x02" {
		t.Errorf("got %x, %v", got, ok)
	}
	if got, ok := Array("\xe0\x04\x02\x51\x01\x02").Bytes(); ok {
		t.Errorf("of an array of signed bytes came %x", got)
	}
}

func TestCharText(t *testing.T) {
	for c, want := range map[Char]string{'a': "a", '€': "€", 0x1F600: "😀", 0xD800: "\uFFFD", -1: "\uFFFD", 0x110000: "\uFFFD"} {
		if got := c.String(); got != want {
			t.Errorf("%#x: got %q, want %q", rune(c), got, want)
		}
	}
}

// The bytes are those of Intel's Decimal Floating-Point Math Library's encoding ("BID"), worked out
// by hand: sign, exponent with the bias 101, 398 or 6176, coefficient.
func TestDecimalText(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"32800000", "0"},            // 0 × 10^0
		{"32800001", "1"},            // exponent 101, coefficient 1
		{"b2800007", "-7"},           // with the sign
		{"318004e2", "12.50"},        // 1250 × 10^-2
		{"32000005", "0.5"},          // 5 × 10^-1
		{"2f800001", "0.000001"},     // 1 × 10^-6
		{"2f000001", "1E-7"},         // 1 × 10^-7
		{"2f00000c", "0.0000012"},    // 12 × 10^-7
		{"35800001", "1E+6"},         // 1 × 10^6
		{"3580000c", "1.2E+7"},       // 12 × 10^6
		{"00000000", "0E-101"},       // the smallest exponent
		{"6cb8967f", "9999999"},      // coefficient 0x98967f: its first bits 100 are implied
		{"77f8967f", "9.999999E+96"}, // the largest
		{"6cb89680", "0"},            // 10,000,000: not canonical
		{"78000000", "Infinity"},
		{"f8000000", "-Infinity"},
		{"7c000000", "NaN"},
		{"fe000000", "NaN"},
		{"31c0000000000001", "1"},                      // exponent 398
		{"31a00000000004e2", "125.0"},                  // 1250 × 10^-1
		{"b1c00000075bcd15", "-123456789"},             //
		{"6c7386f26fc0ffff", "9999999999999999"},       // 2^53 and more: implied bits
		{"3040000000000000 0000000000000001", "1"},     // exponent 6176
		{"303c000000000000 00000000000004e2", "12.50"}, //
		{"b040000000000000 ffffffffffffffff", "-18446744073709551615"},
		{"3041ed09bead87c0 378d8e63ffffffff", "9999999999999999999999999999999999"}, // 34 digits
		{"7800000000000000 0000000000000000", "Infinity"},
		{"6000000000000000 0000000000000001", "0E-6176"}, // implied bits make more than 34 digits
		{"00", "NaN"},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := Decimal(b).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.hex, got, c.want)
		}
	}
}
