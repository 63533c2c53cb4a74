package epk

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Range is a piece of the hash space: from Min, inclusive, to Max, exclusive.
type Range struct{ Min, Max string }

// Whole is the entire hash space.
var Whole = Range{Min: "", Max: end}

const end = "FF"

// maxBound is the length of a bound: four times that of the longest key, a hierarchical one of three components.
const maxBound = 512

// ParseRange checks the bounds that an account or a client stated, and writes them in upper case.
func ParseRange(lower, upper string) (Range, error) {
	r := Range{strings.ToUpper(lower), strings.ToUpper(upper)}
	for _, b := range []string{r.Min, r.Max} {
		if len(b) > maxBound || len(b)%2 != 0 || strings.Trim(b, digits) != "" {
			return Range{}, fmt.Errorf("partition key range %.40q to %.40q: bounds are pairs of hex digits", lower, upper)
		}
	}
	if Compare(r.Min, r.Max) >= 0 || r.Max > end {
		return Range{}, fmt.Errorf("partition key range %.40q to %.40q is empty or beyond %s", lower, upper, end)
	}
	return r, nil
}

// Contains reports whether the effective partition key hash is in the range.
func (r Range) Contains(hash string) bool {
	return Compare(r.Min, hash) <= 0 && Compare(hash, r.Max) < 0
}

// Overlaps reports whether the ranges have a key in common.
func (r Range) Overlaps(o Range) bool { return Compare(r.Min, o.Max) < 0 && Compare(o.Min, r.Max) < 0 }

// Compare orders effective partition keys and bounds. Zeros at the end don't count: the bounds of containers with hierarchical keys come in
// different lengths, some filled up with zeros.
func Compare(a, b string) int {
	n := min(len(a), len(b))
	if c := cmp.Compare(a[:n], b[:n]); c != 0 {
		return c
	}
	switch {
	case strings.Trim(a[n:], "0") != "":
		return 1
	case strings.Trim(b[n:], "0") != "":
		return -1
	default:
		return 0
	}
}

// Find is the index of the range that holds hash, among ranges in order, or -1.
func Find(ranges []Range, hash string) int {
	i, found := slices.BinarySearchFunc(ranges, hash, func(r Range, hash string) int {
		if Compare(r.Max, hash) <= 0 {
			return -1
		}
		if Compare(r.Min, hash) > 0 {
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}

// ErrIncomplete says that ranges leave out a part of the hash space, or hold one twice, as a list read in the middle of a split does.
var ErrIncomplete = errors.New("the partition key ranges don't cover the hash space exactly once")

// Complete checks that ranges, in order, cover the hash space exactly once.
func Complete(ranges []Range) error {
	at := ""
	for _, r := range ranges {
		if Compare(r.Min, at) != 0 || Compare(r.Min, r.Max) >= 0 {
			return ErrIncomplete
		}
		at = r.Max
	}
	if at != end {
		return ErrIncomplete
	}
	return nil
}

// Divide cuts the hash space into n ranges of about as many keys each, as a container starts with.
func (d Definition) Divide(n int) []Range {
	ranges := make([]Range, n)
	at := ""
	for i := range ranges {
		next := end
		if i < n-1 {
			next = d.bound(float64(i+1) / float64(n))
		}
		ranges[i] = Range{at, next}
		at = next
	}
	return ranges
}

// bound is the hash below which a share of the keys is.
func (d Definition) bound(share float64) string {
	if !d.Hierarchical && d.Version != 2 {
		return string(appendHex(nil, appendSortable(nil, Number(float64(uint32(share*(1<<32)))))))
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(share*(1<<62)))
	return string(appendHex(nil, b[:]))
}

// Middle is a hash halfway through the range, unless that is too narrow. Half of the keys are on each side of it in version 2 only.
func (d Definition) Middle(r Range) (string, bool) {
	first, last := uint64(0), uint64(1)<<62
	if !d.Hierarchical && d.Version != 2 {
		first, last = 0x0580<<48, 0x05c2<<48
	}
	if lower := leading(r.Min); r.Min != "" {
		first = max(first, lower)
	}
	if r.Max != end {
		last = min(last, leading(r.Max))
	}
	if first+1 >= last {
		return "", false
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], first+(last-first)/2)
	return string(appendHex(nil, b[:])), true
}

// leading is the number in a bound's first 16 digits.
func leading(bound string) uint64 {
	var b [8]byte
	n := min(len(bound), 16) &^ 1
	_, _ = hex.Decode(b[:], []byte(bound[:n]))
	return binary.BigEndian.Uint64(b[:])
}
