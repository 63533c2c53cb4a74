package idset_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/idset"
)

// most is how many ids a text may have.
const most = 1 << 20

func ids(n int32, sequences ...int64) (list []idset.ID) {
	for _, s := range sequences {
		list = append(list, idset.ID{Sequence: s, N: n})
	}
	return list
}

func decode(t testing.TB, text string) (list []idset.ID) {
	t.Helper()
	if err := idset.Decode(text, most, func(id idset.ID) { list = append(list, id) }); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return list
}

// The set does what a map does, whatever is asked of it.
func TestSet(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var set idset.Set
		want := map[idset.ID]bool{}
		var low, high int64
		for range 2000 {
			high += r.Int64N(1 << r.IntN(8))
			id := idset.ID{Sequence: max(high-r.Int64N(1<<r.IntN(12)), low+1, 0), N: int32(r.IntN(1 + int(seed%3)))}
			if set.Has(id) != want[id] {
				t.Fatalf("seed %d: has %v: %v, want %v", seed, id, set.Has(id), want[id])
			}
			set.Add(id)
			want[id] = true
			if r.IntN(200) == 0 {
				low = max(low, high-r.Int64N(3000))
				set.Forget(low)
			}
		}
		words := map[[2]int64]bool{}
		for id := range want {
			if id.Sequence > low && !set.Has(id) {
				t.Errorf("seed %d: %v is missing", seed, id)
			}
			if id.Sequence>>6 <= low>>6-1 && set.Has(id) {
				t.Errorf("seed %d: %v was to be forgotten up to %d", seed, id, low)
			}
			if set.Has(id) {
				words[[2]int64{id.Sequence >> 6, int64(id.N)}] = true
			}
		}
		first := low + r.Int64N(high-low+1)
		last := first + r.Int64N(200)
		n := 0
		set.Range(first, last, func(id idset.ID) {
			if n++; !want[id] || id.Sequence < first || id.Sequence > last {
				t.Errorf("seed %d: between %d and %d lies %v", seed, first, last, id)
			}
		})
		for id := range want {
			if id.Sequence >= max(first, low+1) && id.Sequence <= last {
				n--
			}
		}
		if n < 0 || n > 0 && first > low+64 {
			t.Errorf("seed %d: between %d and %d lie %d too many", seed, first, last, n)
		}
		if set.Words() != len(words) {
			t.Errorf("seed %d: %d words, want %d", seed, set.Words(), len(words))
		}
		n = set.Words()
		set.Forget(set.Quarter())
		if set.Words() > n-n/4 {
			t.Errorf("seed %d: %d of %d words are left without the lowest quarter", seed, set.Words(), n)
		}
		if set.Forget(math.MaxInt64); set.Words() != 0 {
			t.Errorf("seed %d: %d words are left of nothing", seed, set.Words())
		}
	}
}

func TestEncode(t *testing.T) {
	for text, list := range map[string][]idset.ID{
		"":                                 nil,
		"0:0":                              ids(0, 0),
		"0:10+2,8;1:11":                    append(ids(1, 11), ids(0, 20, 12, 10, 11, 20)...),
		"0:9223372036854775807":            ids(0, math.MaxInt64),
		"2147483647:9223372036854775806+1": ids(math.MaxInt32, math.MaxInt64, math.MaxInt64-1),
		"3:0,9223372036854775807":          ids(3, math.MaxInt64, 0),
	} {
		if got := idset.Encode(slices.Clone(list)); got != text {
			t.Errorf("%v is written %q, want %q", list, got, text)
		}
		got := decode(t, text)
		if again := idset.Encode(got); again != text {
			t.Errorf("%q was read as %v, which is written %q", text, got, again)
		}
	}
	for _, text := range []string{
		":", "0", "0:", "x:1", "0:1,0", "0:1,", "0:1+", "0:-1", "-1:1", "0:1;", "2147483648:1", "0:9223372036854775807+1",
		"0:9223372036854775807,1", "0:0+1048576", "0:0+1048575;1:0", "0:0+99999999999",
	} {
		if err := idset.Decode(text, most, func(idset.ID) {}); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{"", "0:10+2,8;1:11", "3:0,9223372036854775807", "0:1,0", "0:0+1048576", ";", "0:1;0:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var list []idset.ID
		if err := idset.Decode(text, most, func(id idset.ID) { list = append(list, id) }); err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		if len(list) > most {
			t.Fatalf("%q made %d ids", text, len(list))
		}
		again := idset.Encode(slices.Clone(list))
		slices.SortFunc(list, func(a, b idset.ID) int {
			return strings.Compare(idset.Encode([]idset.ID{a}), idset.Encode([]idset.ID{b}))
		})
		back := decode(t, again)
		slices.SortFunc(back, func(a, b idset.ID) int {
			return strings.Compare(idset.Encode([]idset.ID{a}), idset.Encode([]idset.ID{b}))
		})
		if !slices.Equal(slices.Compact(list), back) {
			t.Errorf("%q became %q, which is something else", text, again)
		}
	})
}

func BenchmarkSet(b *testing.B) {
	var set idset.Set
	b.ReportAllocs()
	for n := range int64(b.N) {
		id := idset.ID{Sequence: n ^ 31} // not quite in order
		if !set.Has(id) {
			set.Add(id)
		}
		if n%4096 == 0 {
			set.Forget(n - 100_000)
		}
	}
}
