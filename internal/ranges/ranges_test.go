package ranges_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/ranges"
)

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		base int64
		list []driver.SequenceRange
		want string
	}{
		{9, nil, ""},
		{9, []driver.SequenceRange{{First: 11, Last: 11}, {First: 13, Last: 20}}, "1,1+7"},
		{driver.Unset.Sequence, []driver.SequenceRange{{First: 0, Last: 0}}, "1"},
		{driver.Origin.Sequence, []driver.SequenceRange{{First: 1, Last: math.MaxInt64}}, "1+9223372036854775806"},
		{driver.Unset.Sequence, []driver.SequenceRange{{First: math.MaxInt64, Last: math.MaxInt64}}, "9223372036854775808"},
	} {
		text, err := ranges.Encode(c.base, c.list)
		if err != nil || text != c.want {
			t.Errorf("after %d, %v: got %q, %v; want %q", c.base, c.list, text, err, c.want)
		}
		if list, err := ranges.Decode(c.base, text); err != nil || !slices.Equal(list, c.list) {
			t.Errorf("after %d, %q: got %v, %v; want %v", c.base, text, list, err, c.list)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rng := need.Rand(t)
	for range 100 {
		after := rng.Int64N(1<<rng.IntN(50)) - 2
		var list []driver.SequenceRange
		for last := after; len(list) < 100; last = list[len(list)-1].Last {
			first := last + 2 + rng.Int64N(1<<rng.IntN(40))
			list = append(list, driver.SequenceRange{First: first, Last: first + rng.Int64N(1<<rng.IntN(40))})
		}
		text, err := ranges.Encode(after, list)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ranges.Decode(after, text); err != nil || !slices.Equal(got, list) {
			t.Fatalf("after %d, %v became %q, then %v, %v", after, list, text, got, err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, list := range [][]driver.SequenceRange{
		{{First: 9, Last: 9}},
		{{First: 10, Last: 12}}, // touches
		{{First: math.MinInt64, Last: 12}},
		{{First: 12, Last: 11}},
		{{First: 12, Last: 14}, {First: 15, Last: 16}},
		{{First: 12, Last: 14}, {First: 13, Last: 16}},
		{{First: 12, Last: math.MaxInt64}, {First: 14, Last: 16}},
	} {
		if text, err := ranges.Encode(9, list); err == nil {
			t.Errorf("%v: got %q, want an error", list, text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{"", "1", "1,1+7", "0", "1+0", "1,,2", "+", "-1", "1+-1", "9223372036854775808", "18446744073709551615", "9223372036854775797+1", "1+9223372036854775807,1"} {
		f.Add(int64(9), text)
		f.Add(int64(-2), text)
		f.Add(int64(math.MaxInt64), text)
	}
	f.Fuzz(func(t *testing.T, after int64, text string) {
		after = max(after, -2)
		list, err := ranges.Decode(after, text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %v", err)
			}
			return
		}
		again, err := ranges.Encode(after, list)
		if err != nil {
			t.Fatalf("%q after %d was read as %v: %v", text, after, list, err)
		}
		if got, err := ranges.Decode(after, again); err != nil || !slices.Equal(got, list) {
			t.Errorf("%v became %q, then %v, %v", list, again, got, err)
		}
	})
}
