// Package idset holds sets of numbered ids: in memory as bits, in a database as
// text.
package idset

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// ID is a pair of numbers that are not negative. A [Set] is small if its ids are
// dense in Sequence and have few different N.
type ID struct {
	Sequence int64
	N        int32
}

func (id ID) compare(other ID) int {
	return cmp.Or(cmp.Compare(id.N, other.N), cmp.Compare(id.Sequence, other.Sequence))
}

// Set is a set of ids. The zero value is empty. Adding is cheap where the new
// ids are mostly the highest.
type Set struct {
	words []word // ascending
}

// word has 64 ids in a row with one n.
type word struct {
	block int64 // their sequence numbers without the last six bits
	n     int32
	bits  uint64
}

// Words returns the size of the set in words, each of which holds 1 to 64 ids.
func (s *Set) Words() int { return len(s.words) }

// Quarter returns the highest sequence number in the lowest quarter of the set,
// which must not be empty.
func (s *Set) Quarter() int64 { return s.words[len(s.words)/4].last() }

// last is the highest number that a word can hold.
func (w word) last() int64 { return w.block<<6 | 63 }

func (s *Set) find(id ID) (int, bool) {
	block := id.Sequence >> 6
	return slices.BinarySearchFunc(s.words, id, func(w word, id ID) int {
		return cmp.Or(cmp.Compare(w.block, block), cmp.Compare(w.n, id.N))
	})
}

// Has reports whether the set has an id.
func (s *Set) Has(id ID) bool {
	i, found := s.find(id)
	return found && s.words[i].bits&(1<<(id.Sequence&63)) != 0
}

// Range calls yield with the ids from one sequence number to another, both
// included.
func (s *Set) Range(first, last int64, yield func(ID)) {
	i, _ := s.find(ID{Sequence: max(first, 0)})
	for ; i < len(s.words) && s.words[i].block <= last>>6; i++ {
		w := s.words[i]
		for rest := w.bits; rest != 0; rest &= rest - 1 {
			id := ID{w.block<<6 | int64(bits.TrailingZeros64(rest)), w.n}
			if id.Sequence >= first && id.Sequence <= last {
				yield(id)
			}
		}
	}
}

// Add adds an id.
func (s *Set) Add(id ID) {
	i, found := s.find(id)
	if !found {
		s.words = slices.Insert(s.words, i, word{block: id.Sequence >> 6, n: id.N})
	}
	s.words[i].bits |= 1 << (id.Sequence & 63)
}

// Forget removes the ids up to a sequence number. Up to 63 of the last ones may
// remain.
func (s *Set) Forget(upTo int64) {
	n := 0
	for n < len(s.words) && s.words[n].last() <= upTo {
		n++
	}
	if s.words = s.words[n:]; len(s.words) == 0 {
		s.words = nil
	}
}

// Encode sorts ids, and returns them as printable ASCII: for each N the first
// sequence number, then the distance of each further one; and after a plus sign the
// number of ids that follow it without a gap. So 10, 11, 12 and 20 with N 0, and 11
// with N 1, are "0:10+2,8;1:11".
func Encode(ids []ID) string {
	slices.SortFunc(ids, ID.compare)
	ids = slices.Compact(ids)
	var b []byte
	for i := 0; i < len(ids); {
		id, distance := ids[i], ids[i].Sequence
		switch {
		case i > 0 && ids[i-1].N == id.N:
			b = append(b, ',')
			distance -= ids[i-1].Sequence
		case i > 0:
			b = append(b, ';')
			fallthrough
		default:
			b = append(strconv.AppendInt(b, int64(id.N), 10), ':')
		}
		b = strconv.AppendInt(b, distance, 10)
		run := i + 1
		for run < len(ids) && ids[run].N == id.N && ids[run].Sequence == ids[run-1].Sequence+1 {
			run++
		}
		if more := run - i - 1; more > 0 {
			b = strconv.AppendInt(append(b, '+'), int64(more), 10)
		}
		i = run
	}
	return string(b)
}

var errText = errors.New("not as they were written")

// Decode reads a text of [Encode] with at most most ids, and calls yield with each.
func Decode(text string, most int, yield func(ID)) error {
	if text == "" {
		return nil
	}
	left := int64(most)
	for group := range strings.SplitSeq(text, ";") {
		number, list, ok := strings.Cut(group, ":")
		n, err := read(number, 31)
		if !ok || err != nil {
			return errText
		}
		at := int64(-1)
		for part := range strings.SplitSeq(list, ",") {
			first, more, long := strings.Cut(part, "+")
			distance, err := read(first, 63)
			var further int64
			if err == nil && long {
				further, err = read(more, 31)
			}
			if err != nil || at >= 0 && distance == 0 || distance > math.MaxInt64-max(at, 0)-further || further >= left {
				return errText
			}
			at = max(at, 0) + distance
			for end := at + further; ; at++ {
				yield(ID{at, int32(n)})
				if left--; at == end {
					break
				}
			}
		}
	}
	return nil
}

func read(text string, bits int) (int64, error) {
	n, err := strconv.ParseUint(text, 10, bits)
	return int64(n), err
}
