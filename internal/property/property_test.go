package property

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

func TestRoundTripKeepsTypes(t *testing.T) {
	in := map[string]any{
		"nil": nil, "s": "text", "b": true, "i8": int8(-8), "i16": int16(-16), "i32": int32(-32), "i64": int64(math.MinInt64),
		"i": 7, "u8": uint8(8), "u16": uint16(16), "u32": uint32(32), "u64": uint64(math.MaxUint64), "u": uint(9),
		"f32": float32(1.1), "f64": math.Pi, "inf": math.Inf(1), "bytes": []byte{0, 255}, "t": time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		"time": driver.DateTimeOffset(638397546319355456), "span": driver.TimeSpan(math.MinInt64), "uri": driver.URI("a:b"),
	}
	data, err := Encode(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got  %#v\nwant %#v", out, in)
	}
}

func TestRefuses(t *testing.T) {
	if _, err := Encode(map[string]any{"x": struct{}{}}); err == nil {
		t.Error("a struct was encoded")
	}
	for _, bad := range []string{`[`, `{"a":1}`, `{"a":[]}`, `{"a":{}}`, `{"a":{"int8":"999"}}`, `{"a":{"what":"1"}}`, `{"a":{"int8":"1","int16":"1"}}`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%s was decoded", bad)
		}
	}
}
