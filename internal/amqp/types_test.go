package amqp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestValueRoundTrip(t *testing.T) {
	long := strings.Repeat("x", 300)
	when := time.Date(2024, 2, 29, 23, 59, 59, 123e6, time.UTC)
	for _, v := range []any{
		nil, true, false,
		uint8(0), uint8(255), uint16(0), uint16(65535),
		uint32(0), uint32(1), uint32(255), uint32(256), uint32(math.MaxUint32),
		uint64(0), uint64(1), uint64(255), uint64(256), uint64(math.MaxUint64),
		int8(-128), int8(127), int16(-32768), int16(32767),
		int32(0), int32(-128), int32(127), int32(128), int32(math.MinInt32), int32(math.MaxInt32),
		int64(0), int64(-128), int64(127), int64(-129), int64(math.MinInt64), int64(math.MaxInt64),
		float32(1.5), float64(-2.25), math.Inf(1), Char('€'),
		Decimal("1234"), Decimal("12345678"), Decimal("1234567890123456"),
		when, time.UnixMilli(-62135596800000).UTC(), UUID{1, 2, 3, 15: 16},
		[]byte{}, []byte{1, 2, 3}, []byte(long), "", "héllo", long, Symbol(""), Symbol("amqp:accepted:list"), Symbol(long),
		List{}, List{nil, "a", List{int64(1)}}, Map{}, Map{{"k", uint32(1)}, {Symbol("s"), Map{{int64(1), nil}}}, {[]byte{1}, true}},
		Described{uint64(0x468C00000004), "x > '1'"}, Described{Symbol("a:b"), List{Described{uint64(1), nil}}},
	} {
		b := AppendValue([]byte{0xee}, v)[1:]
		d := decoder{buf: b}
		got := d.value()
		if d.err != nil || d.offset != len(b) {
			t.Errorf("%T %.20v: encoded % x: %v, %d of %d bytes read", v, v, b[:min(len(b), 20)], d.err, d.offset, len(b))
		} else if !reflect.DeepEqual(got, v) {
			t.Errorf("%T %.20v became %T %.20v", v, v, got, got)
		}
		d = decoder{buf: b}
		if d.skip(); d.err != nil || d.offset != len(b) {
			t.Errorf("%T %.20v: skipping: %v, %d of %d bytes", v, v, d.err, d.offset, len(b))
		}
		for n := range len(b) {
			cut := decoder{buf: b[:n]}
			if cut.value(); cut.err == nil {
				t.Errorf("%T %.20v cut to %d of %d bytes was decoded", v, v, n, len(b))
			}
			if cut = (decoder{buf: b[:n]}); n > 0 {
				if cut.skip(); cut.err == nil {
					t.Errorf("%T %.20v cut to %d of %d bytes was skipped", v, v, n, len(b))
				}
			}
		}
	}
}

// The encodings are those of the standard, part 1: the figures and tables of sections 1.2 to 1.6,
// and values worked out from them by hand.
func TestValueVectors(t *testing.T) {
	for _, v := range []struct {
		name, hex string
		want      any
		wide      bool // a longer encoding than the one that is written
	}{
		{name: "null", hex: "40", want: nil},
		{name: "true", hex: "41", want: true},
		{name: "boolean octet 0", hex: "5600", want: false, wide: true},
		{name: "boolean octet 1", hex: "5601", want: true, wide: true},
		{name: "uint0", hex: "43", want: uint32(0)},
		{name: "uint in four bytes", hex: "7000000001", want: uint32(1), wide: true},
		{name: "ulong0", hex: "44", want: uint64(0)},
		{name: "smallulong", hex: "53ff", want: uint64(255)},
		{name: "smallint -1", hex: "54ff", want: int32(-1)},
		{name: "smalllong -1", hex: "55ff", want: int64(-1)},
		{name: "int", hex: "71ffffff7f", want: int32(-129)},
		{name: "char", hex: "7300000041", want: Char('A')},
		{name: "float", hex: "723fc00000", want: float32(1.5)},
		{name: "double", hex: "823ff8000000000000", want: 1.5},
		{name: "timestamp", hex: "83000001311 7fc43 c8", want: time.UnixMilli(0x13117fc43c8).UTC()},
		{name: "vbin32", hex: "b00000000101", want: []byte{1}, wide: true},
		{name: "str8", hex: "a1034f6e65", want: "One"},
		{name: "str32", hex: "b1000000034f6e65", want: "One", wide: true},
		{name: "sym32", hex: "b3000000034f6e65", want: Symbol("One"), wide: true},
		{name: "list0", hex: "45", want: List{}, wide: true},
		{name: "list8", hex: "c004 02 5401 41", want: List{int32(1), true}, wide: true},
		{name: "map8", hex: "c106 02 a10161 5401", want: Map{{"a", int32(1)}}, wide: true},
		{name: "array8 of ubyte", hex: "e0 04 02 50 01 02", want: Array("\xe0\x04\x02\x50\x01\x02")},
		{name: "described string, section 1.2", hex: "00 a1 03 55524c a1 1e 687474703a2f2f6578616d706c652e6f72672f68656c6c6f2d776f726c64",
			want: Described{"URL", "http://example.org/hello-world"}},
		{name: "book, section 1.4", wide: true,
			hex: "00 a3 11 6578616d706c653a626f6f6b3a6c697374 c0 40 03 a1 15 414d515020666f7220262062792044756d6d696573 " +
				"e0 25 02 a1 0e 526f62204a2e20476f6466726579 13 52616661656c20482e205363686c6f6d696e67 40",
			want: Described{Symbol("example:book:list"), List{"AMQP for & by Dummies",
				Array("\xe0\x25\x02\xa1\x0eRob J. Godfrey\x13Rafael H. Schloming"), nil}}},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(v.hex, " ", ""))
		if err != nil {
			t.Fatal(v.name, err)
		}
		d := decoder{buf: b}
		if got := d.value(); d.err != nil || d.offset != len(b) || !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s: decoded %#v, error %v, %d of %d bytes", v.name, got, d.err, d.offset, len(b))
		}
		if got := AppendValue(nil, v.want); !v.wide && !bytes.Equal(got, b) {
			t.Errorf("%s: encoded % x, want % x", v.name, got, b)
		}
	}
}

func TestMalformedValues(t *testing.T) {
	deep := func(n int) []byte {
		var b []byte
		for range n {
			b = append(b, 0x00, 0x53, 0x01)
		}
		return append(b, 0x40)
	}
	for name, b := range map[string][]byte{
		"empty":                               {},
		"unknown format code":                 {0x46},
		"unknown format code, compound":       {0xc2, 0x01, 0x00},
		"string that isn't UTF-8":             {0xa1, 0x01, 0xff},
		"string of 4 GiB":                     {0xb1, 0xff, 0xff, 0xff, 0xff},
		"list beyond the input":               {0xc0, 0x05, 0x01, 0x40},
		"list of 4 billion elements":          {0xd0, 0x00, 0x00, 0x00, 0x05, 0xff, 0xff, 0xff, 0xff, 0x40},
		"list of more elements than bytes":    {0xc0, 0x03, 0x03, 0x40, 0x40},
		"list shorter than its size":          {0xc0, 0x03, 0x01, 0x40, 0x40},
		"list whose element leaves it":        {0xc0, 0x02, 0x01, 0xa1, 0x01, 0x61},
		"map of an odd number":                {0xc1, 0x02, 0x01, 0x40},
		"array of a million nulls":            {0xf0, 0x00, 0x00, 0x00, 0x05, 0x00, 0x10, 0x00, 0x00, 0x40},
		"array of an unknown type":            {0xe0, 0x03, 0x01, 0x46, 0x00},
		"nested too deep":                     deep(maxDepth + 1),
		"arrays nested too deep":              bytes.Repeat([]byte{0xf0, 0, 0, 0, 0xff, 0, 0, 0, 1}, 100),
		"described without value":             {0x00, 0x53, 0x01},
		"size of 2 GiB that overflows an int": {0xd0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		d := decoder{buf: b}
		if v := d.value(); d.err == nil {
			t.Errorf("%s: decoded as %#v", name, v)
		} else if d.err.Condition != CondDecode {
			t.Errorf("%s: condition %s", name, d.err.Condition)
		}
	}
	d := decoder{buf: deep(maxDepth)}
	if d.value(); d.err != nil {
		t.Errorf("nesting at the limit: %v", d.err)
	}
}

func TestEncodingAnUnknownTypePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	AppendValue(nil, struct{}{})
}

// What decodes must encode to something that decodes to the same, skipping must agree with
// decoding about where a value ends, and neither allocates more memory than the input justifies.
func FuzzValue(f *testing.F) {
	for _, v := range []any{nil, "text", List{int64(1), Map{{"a", []byte{1}}}}, Described{Symbol("x"), UUID{}}, time.UnixMilli(1), Char(1)} {
		f.Add(AppendValue(nil, v))
	}
	f.Add([]byte{0xe0, 0x04, 0x02, 0x50, 0x01, 0x02})
	f.Add(claiming(maxDepth, 4000))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, s decoder
		var v any
		most := uint64(100*len(b) + 32<<10)
		took := uint64(math.MaxUint64) // the least: the process counts, and other goroutines allocate too
		for n := 0; n < 5 && took > most; n++ {
			d, s = decoder{buf: b}, decoder{buf: b}
			before := allocated()
			v = d.value()
			s.skip()
			took = min(took, allocated()-before)
		}
		if took > most {
			t.Fatalf("%d bytes take %d bytes of memory", len(b), took)
		}
		if d.err != nil {
			return
		}
		if s.err != nil || s.offset != d.offset {
			t.Fatalf("decoding ends at %d, skipping at %d with %v", d.offset, s.offset, s.err)
		}
		again := AppendValue(nil, v)
		d2 := decoder{buf: again}
		v2 := d2.value()
		if d2.err != nil || !bytes.Equal(AppendValue(nil, v2), again) {
			t.Fatalf("%#v became %#v, %v", v, v2, d2.err)
		}
	})
}

// claiming is lists within lists, each of which claims as many elements as there are bytes.
func claiming(depth, size int) []byte {
	b := make([]byte, 0, size)
	for range depth {
		left := uint32(size - len(b) - 5)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(append(b, codeList32), left), left-4)
	}
	return append(b, bytes.Repeat([]byte{codeNull}, size-len(b))...)
}

// allocated is how many bytes have been allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
