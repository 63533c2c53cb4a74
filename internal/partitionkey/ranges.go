package partitionkey

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Range is a partition key range: from Min, inclusive, to Max, exclusive.
type Range struct{ Min, Max string }

// Whole is the range of all effective partition keys.
var Whole = Range{Min: "", Max: end}

const end = "FF"

// maxBound is the maximum length of a bound: four times that of the longest key, a
// hierarchical one of three components.
const maxBound = 512

// ParseRange checks the bounds in a message of an account or a client, and converts
// them to upper case. It returns an error unless they are hex digits, and the range is
// not empty.
func ParseRange(lower, upper string) (Range, error) {
	r := Range{strings.ToUpper(lower), strings.ToUpper(upper)}
	for _, b := range []string{r.Min, r.Max} {
		if len(b) > maxBound || len(b)%2 != 0 || strings.Trim(b, digits) != "" {
			return Range{}, fmt.Errorf("partition key range %.40q to %.40q: bounds must be pairs of hex digits", lower, upper)
		}
	}
	if Compare(r.Min, r.Max) >= 0 || r.Max > end {
		return Range{}, fmt.Errorf("partition key range %.40q to %.40q is empty or beyond %s", lower, upper, end)
	}
	return r, nil
}

// Contains reports whether an effective partition key is in the range.
func (r Range) Contains(hash string) bool {
	return Compare(r.Min, hash) <= 0 && Compare(hash, r.Max) < 0
}

// Overlaps reports whether the ranges have a key in common.
func (r Range) Overlaps(o Range) bool { return Compare(r.Min, o.Max) < 0 && Compare(o.Min, r.Max) < 0 }

// Compare orders effective partition keys and bounds. It ignores zeros at the end: the
// bounds of containers with hierarchical keys have different lengths, some padded with
// zeros.
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

// Find returns the index of the range that contains hash, or -1. The ranges must be
// sorted.
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

// ErrIncomplete means that ranges leave a gap or overlap, as a list that was read
// during a split may.
var ErrIncomplete = errors.New("the partition key ranges have a gap or overlap")

// Complete returns [ErrIncomplete] unless the ranges, which must be sorted, cover all
// keys exactly once.
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

// Divide returns the n ranges of a new container, each with about the same share of the
// keys.
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

// bound returns the hash below which a share of the keys is, from 0 to 1.
func (d Definition) bound(share float64) string {
	if !d.Hierarchical && d.Version != 2 {
		return string(appendHex(nil, appendSortable(nil, Number(float64(uint32(share*(1<<32)))))))
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(share*(1<<62)))
	return string(appendHex(nil, b[:]))
}

// Middle returns a hash in the middle of the range, unless that is too narrow. Only in
// version 2 is half of the keys on each side.
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

// leading returns the number in a bound's first 16 digits.
func leading(bound string) uint64 {
	var b [8]byte
	n := min(len(bound), 16) &^ 1
	_, _ = hex.Decode(b[:], []byte(bound[:n]))
	return binary.BigEndian.Uint64(b[:])
}
