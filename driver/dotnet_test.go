package driver

import (
	"math"
	"testing"
	"time"
)

func TestDateTimeOffset(t *testing.T) {
	for ticks, want := range map[int64]string{
		0:                        "0001-01-01T00:00:00Z",
		638397614454567890:       "2024-01-02T03:04:05.456789Z",
		638397614454567891:       "2024-01-02T03:04:05.4567891Z",
		int64(MaxDateTimeOffset): "9999-12-31T23:59:59.9999999Z",
	} {
		v, ok := Described(DescriptorDateTimeOffset, ticks)
		if got, _ := v.(DateTimeOffset); !ok || got.String() != want || int64(got) != ticks {
			t.Errorf("%d: %v, want %s", ticks, v, want)
		}
	}
	for _, ticks := range []int64{-1, int64(MaxDateTimeOffset) + 1} {
		if v, ok := Described(DescriptorDateTimeOffset, ticks); ok {
			t.Errorf("%d ticks are the time %v", ticks, v)
		}
	}
}

func TestTimeSpan(t *testing.T) {
	for ticks, want := range map[int64]string{
		0:             "00:00:00",
		1:             "00:00:00.0000001",
		-50:           "-00:00:00.000005",
		937845000000:  "26:03:04.5",
		math.MaxInt64: "256204778:48:05.4775807",
		math.MinInt64: "-256204778:48:05.4775808",
	} {
		v, ok := Described(DescriptorTimeSpan, ticks)
		if got, _ := v.(TimeSpan); !ok || got.String() != want {
			t.Errorf("%d: %v, want %s", ticks, v, want)
		}
	}
	if d := TimeSpan(15).Duration(); d != 1500*time.Nanosecond {
		t.Errorf("15 ticks are %v", d)
	}
	if TimeSpan(math.MaxInt64).Duration() != math.MaxInt64 || TimeSpan(math.MinInt64).Duration() != math.MinInt64 {
		t.Error("a long duration wraps")
	}
}

func TestDescribed(t *testing.T) {
	if v, ok := Described(DescriptorURI, "a:b"); !ok || v != URI("a:b") {
		t.Errorf("a Uri is %v", v)
	}
	for _, c := range []struct {
		descriptor string
		value      any
	}{{DescriptorURI, int64(1)}, {DescriptorTimeSpan, "1"}, {DescriptorTimeSpan, int32(1)}, {"other", int64(1)}, {"", nil}} {
		if v, ok := Described(c.descriptor, c.value); ok {
			t.Errorf("%v is %#v", c, v)
		}
	}
}
