package blobstore

import (
	"math"
	"slices"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

func TestRangesRoundTrip(t *testing.T) {
	for position, ranges := range map[int64][]driver.SequenceRange{
		-2: {{First: 0, Last: 0}},
		-1: {{First: 1, Last: math.MaxInt64}},
		9:  {{First: 11, Last: 11}, {First: 13, Last: 20}, {First: 22, Last: 1 << 41}},
		5:  nil,
	} {
		got, err := unpackRanges(position, packRanges(position, ranges, 1000))
		if err != nil || !slices.Equal(got, ranges) {
			t.Errorf("%v after %d became %v, %v", ranges, position, got, err)
		}
	}
}

// What there is no room for is left out from the end.
func TestRangesRoom(t *testing.T) {
	var ranges []driver.SequenceRange
	r, next := need.Rand(t), int64(0)
	for range 5000 {
		next += 2 + r.Int64N(100)
		ranges = append(ranges, driver.SequenceRange{First: next, Last: next})
	}
	for _, room := range []int{0, 1, 3, 100, 6500} {
		text := packRanges(-1, ranges, room)
		got, err := unpackRanges(-1, text)
		if err != nil || len(text) > room || !slices.Equal(got, ranges[:len(got)]) {
			t.Errorf("room for %d: %d characters, %v", room, len(text), err)
		}
		if want := room * 3 / 8; len(got) < want-1 {
			t.Errorf("room for %d holds %d small ranges, want %d", room, len(got), want)
		}
	}
}

// Ranges that a caller must not give end the list.
func TestRangesOutOfOrder(t *testing.T) {
	for _, bad := range []driver.SequenceRange{{First: 5, Last: 5}, {First: 20, Last: 19}, {First: 12, Last: 30}} {
		got, err := unpackRanges(9, packRanges(9, []driver.SequenceRange{{First: 11, Last: 12}, bad, {First: 40, Last: 41}}, 1000))
		if err != nil || !slices.Equal(got, []driver.SequenceRange{{First: 11, Last: 12}}) {
			t.Errorf("with %v: %v, %v", bad, got, err)
		}
	}
}

func FuzzUnpackRanges(f *testing.F) {
	f.Add(int64(9), packRanges(9, []driver.SequenceRange{{First: 11, Last: 12}, {First: 40, Last: 41}}, 1000))
	f.Add(int64(math.MaxInt64), "AQAB")
	f.Add(int64(-2), "_____________wE")
	f.Fuzz(func(t *testing.T, position int64, text string) {
		ranges, err := unpackRanges(position, text)
		last := position
		for _, r := range ranges {
			if r.First <= last || r.Last < r.First {
				t.Fatalf("%v after %d", ranges, position)
			}
			last = r.Last
		}
		if err == nil {
			if again, err := unpackRanges(position, packRanges(position, ranges, math.MaxInt)); err != nil || !slices.Equal(again, ranges) {
				t.Fatalf("%v became %v, %v", ranges, again, err)
			}
		}
	})
}
