package blobstore

import (
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/sluice-go/sluice/driver"
)

// Ranges are packed as pairs of unsigned varints, in base64: how many events are between the range
// and the position or range before it, and how many the range has after its first. A range takes
// two bytes (less than three characters) if both numbers are below 128. Other stores keep the
// readable text of internal/ranges. Here space is scarce: with gaps of a hundred events, metadata
// holds twice as many ranges as in that text.

// packRanges packs as many of the first ranges as fit in room characters.
func packRanges(position int64, ranges []driver.SequenceRange, room int) string {
	var packed []byte
	last := position
	for _, r := range ranges {
		if r.First <= last || r.Last < r.First {
			break // out of order, against the contract: the rest cannot be encoded
		}
		next := binary.AppendUvarint(packed, uint64(r.First)-uint64(last)-1) // two's complement: also where a difference overflows
		next = binary.AppendUvarint(next, uint64(r.Last)-uint64(r.First))
		if base64.RawURLEncoding.EncodedLen(len(next)) > room {
			break
		}
		packed, last = next, r.Last
	}
	return base64.RawURLEncoding.EncodeToString(packed)
}

var errRanges = errors.New("not ranges")

// unpackRanges is the inverse of packRanges.
func unpackRanges(position int64, text string) ([]driver.SequenceRange, error) {
	packed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errRanges
	}
	var ranges []driver.SequenceRange
	for last := position; len(packed) > 0; {
		gap, n := binary.Uvarint(packed)
		if n <= 0 {
			return nil, errRanges
		}
		more, m := binary.Uvarint(packed[n:])
		if m <= 0 {
			return nil, errRanges
		}
		packed = packed[n+m:]
		r := driver.SequenceRange{First: int64(uint64(last) + gap + 1)}
		r.Last = int64(uint64(r.First) + more)
		if r.First <= last || r.Last < r.First {
			return nil, errRanges
		}
		ranges, last = append(ranges, r), r.Last
	}
	return ranges, nil
}
