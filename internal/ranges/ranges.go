// Package ranges encodes which events after a checkpoint are done.
package ranges

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-go/sluice/driver"
)

// Encode returns ranges after the event numbered after as printable ASCII: for each
// range the number of events missing before it and, after a plus sign, the number
// of events that follow its first. So after 9, the ranges 11 to 11 and 13 to 20 are
// "1,1+7". The ranges must ascend, with gaps between them and after the event.
func Encode(after int64, list []driver.SequenceRange) (string, error) {
	var text []byte
	for i, r := range list {
		// The difference of two numbers of at least -2 always fits in a uint64.
		if r.First <= after || uint64(r.First)-uint64(after) < 2 || r.Last < r.First {
			return "", fmt.Errorf("range %d to %d cannot follow %d", r.First, r.Last, after)
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(r.First)-uint64(after)-1, 10)
		if r.Last > r.First {
			text = strconv.AppendInt(append(text, '+'), r.Last-r.First, 10)
		}
		after = r.Last
	}
	return string(text), nil
}

// Decode is the inverse of [Encode], for the same event.
func Decode(after int64, text string) ([]driver.SequenceRange, error) {
	if text == "" {
		return nil, nil
	}
	list := make([]driver.SequenceRange, 0, strings.Count(text, ",")+1)
	for part := range strings.SplitSeq(text, ",") {
		gap, more, long := strings.Cut(part, "+")
		r, err := follow(after, gap, more, long)
		if err != nil {
			return nil, fmt.Errorf("stored ranges after %d: %.60q: %w", after, part, err)
		}
		list = append(list, r)
		after = r.Last
	}
	return list, nil
}

// follow decodes one range.
func follow(after int64, gap, more string, long bool) (driver.SequenceRange, error) {
	var r driver.SequenceRange
	missing, err := strconv.ParseUint(gap, 10, 64)
	switch {
	case err != nil:
		return r, errors.Unwrap(err) // without the text
	case missing == 0 || after == math.MaxInt64 || missing > uint64(math.MaxInt64)-uint64(after+1):
		return r, strconv.ErrRange
	}
	r.First = int64(uint64(after+1) + missing)
	r.Last = r.First
	if !long {
		return r, nil
	}
	further, err := strconv.ParseUint(more, 10, 63)
	switch {
	case err != nil:
		return r, errors.Unwrap(err)
	case further == 0 || further > uint64(math.MaxInt64-r.First):
		return r, strconv.ErrRange
	}
	r.Last += int64(further)
	return r, nil
}
