package partitionkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

type vector struct {
	Kind    string
	Version int
	Values  json.RawMessage
	Hash    string
}

func vectors(t *testing.T, file string) []vector {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Vectors []vector }
	if err := json.Unmarshal(data, &list); err != nil || len(list.Vectors) < 20 {
		t.Fatalf("%d vectors, %v", len(list.Vectors), err)
	}
	return list.Vectors
}

func (v vector) hash(t *testing.T) string {
	t.Helper()
	values, err := Parse(v.Values)
	if err != nil {
		t.Fatalf("%s: %v", v.Values, err)
	}
	return Definition{Hierarchical: v.Kind == "MultiHash", Version: v.Version}.Hash(values...)
}

// The JavaScript client leaves out the last byte of some numbers' encoding in version 1, and counts
// a string's UTF-16 units where the others count bytes. Either only touches what follows the hash;
// there Python's vectors hold.
func TestVectorsOfJavaScript(t *testing.T) {
	for _, v := range vectors(t, "testdata/javascript.json") {
		got := v.hash(t)
		if got == v.Hash {
			continue
		}
		short := v.Version == 1 && got == v.Hash+"00"
		long := v.Version == 1 && len(v.Values) > maxV1 && len(got) >= 2*(1+maxV1) && strings.HasPrefix(v.Hash, got)
		if !short && !long {
			t.Errorf("%s %d %.60s: %s, want %s", v.Kind, v.Version, v.Values, got, v.Hash)
		}
	}
}

func TestVectorsOfPython(t *testing.T) {
	for _, v := range vectors(t, "testdata/python.json") {
		if got := v.hash(t); got != strings.ToUpper(v.Hash) {
			t.Errorf("%.60s: %s, want %s", v.Values, got, v.Hash)
		}
	}
}

func TestHashIsWithinTheRanges(t *testing.T) {
	for _, d := range []Definition{{Version: 1}, {Version: 2}, {Version: 2, Hierarchical: true}} {
		for i := range 1000 {
			if h := d.Hash(Number(float64(i))); !Whole.Contains(h) || (d.Version == 2 && h >= "40") {
				t.Fatalf("%+v: %s", d, h)
			}
		}
	}
	d := Definition{Version: 2, Hierarchical: true}
	prefix, whole := d.Hash(String("a")), d.Hash(String("a"), String("b"))
	if !(Range{prefix, prefix + "FF"}).Contains(whole) {
		t.Errorf("%s is not below %s", whole, prefix)
	}
	if got := d.Hash(); got != "" {
		t.Errorf("the empty key's hash is %s", got)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string][]Value{
		`[]`: {}, `["a"]`: {String("a")}, ` [ "a" , 1 , null ] `: {String("a"), Number(1), Null}, `[{}]`: {Undefined}, `[{ }]`: {Undefined},
		`[true,false]`: {Bool(true), Bool(false)}, `["\u00fc\n\ud83d\ude00"]`: {String("ü\n😀")}, `[-0]`: {Number(0)}, `["ü"]`: {String("ü")},
	} {
		got, err := Parse([]byte(in))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", in, got, err)
			continue
		}
		if again, err := Parse(AppendJSON(nil, got)); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s: written as %s", in, AppendJSON(nil, got))
		}
	}
	for _, in := range []string{``, `null`, `"a"`, `{}`, `[`, `["a"`, `[1e999]`, `[[]]`, `[{"a":1}]`, `[1,2,3,4]`, `[NaN]`, `[0x10]`, `["a]`, `[{]`} {
		if v, err := Parse([]byte(in)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", in, v, err)
		}
	}
	if math.Signbit(Number(math.Copysign(0, -1)).number) {
		t.Error("-0 is kept")
	}
}

func TestRanges(t *testing.T) {
	parse := func(lower, upper string) Range {
		t.Helper()
		r, err := ParseRange(lower, upper)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ranges := []Range{parse("", "0d"), parse("0D", "1AFF"), parse("1AFF0000", "FF")}
	if err := Complete(ranges); err != nil {
		t.Error(err)
	}
	for hash, want := range map[string]int{"": 0, "0CFFFF": 0, "0D": 1, "0D00": 1, "0D01": 1, "1AFE": 1, "1AFF": 2, "1AFF00": 2, "3FFF": 2, "FE": 2, "FF": -1} {
		if got := Find(ranges, hash); got != want {
			t.Errorf("%s is in %d, want %d", hash, got, want)
		}
	}
	for _, bad := range [][]Range{nil, ranges[:2], ranges[1:], {ranges[0], ranges[2]}, {ranges[0], ranges[0], ranges[1], ranges[2]}} {
		if Complete(bad) == nil {
			t.Errorf("%v is complete", bad)
		}
	}
	for _, bad := range [][2]string{{"FF", "00"}, {"", ""}, {"0", "FF"}, {"GG", "FF"}, {"", "FFFF"}, {"00", "0000"}, {strings.Repeat("00", 300), "FF"}} {
		if r, err := ParseRange(bad[0], bad[1]); err == nil {
			t.Errorf("%v is a range: %v", bad, r)
		}
	}
	if !ranges[0].Overlaps(Range{"0C", "0E"}) || ranges[0].Overlaps(Range{"0D00", "0E"}) {
		t.Error("overlaps")
	}
}

// The ranges of a new container get about as many keys each, whatever the hash.
func TestDivide(t *testing.T) {
	for _, d := range []Definition{{Version: 1}, {Version: 2}, {Hierarchical: true}} {
		for _, n := range []int{1, 2, 5, 16, 100} {
			ranges := d.Divide(n)
			if err := Complete(ranges); err != nil || len(ranges) != n {
				t.Fatalf("%+v: %d ranges, %v", d, len(ranges), err)
			}
			keys := make([]int, n)
			for i := range 1000 * n {
				keys[Find(ranges, d.Hash(String(fmt.Sprint("key-", i)), Number(float64(i))))]++
			}
			for i, got := range keys {
				if got < 850 || got > 1150 {
					t.Errorf("%+v: range %d of %d has %d keys of %d", d, i, n, got, 1000*n)
				}
			}
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, d := range []Definition{{Version: 1}, {Version: 2}, {Hierarchical: true}} {
		for _, r := range append(d.Divide(5), Whole) {
			for range 20 {
				middle, ok := d.Middle(r)
				if !ok || Compare(middle, r.Min) <= 0 || Compare(middle, r.Max) >= 0 {
					t.Fatalf("%+v: the middle of %v is %q", d, r, middle)
				}
				r.Max = middle
			}
		}
	}
	if m, ok := (Definition{Version: 2}).Middle(Range{"0D", "0D000000000000000001"}); ok {
		t.Errorf("too narrow a range has the middle %s", m)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`["a",1,null]`, `[{}]`, `["\ud800"]`, `[1e-7]`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Parse(AppendJSON(nil, values))
		if err != nil || !reflect.DeepEqual(values, again) {
			t.Fatalf("%q: %v, then %v, %v", data, values, again, err)
		}
		for _, d := range []Definition{{Version: 1}, {Version: 2}, {Hierarchical: true}} {
			if h := d.Hash(values...); !Whole.Contains(h) {
				t.Fatalf("%v of %q is beyond the hash space: %s", d, data, h)
			}
		}
	})
}

func BenchmarkHash(b *testing.B) {
	v := String("key-1234567")
	var space [64]byte
	for b.Loop() {
		Definition{Version: 2}.AppendHash(space[:0], v)
	}
}
