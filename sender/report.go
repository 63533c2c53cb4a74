package sender

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
)

// Report tells what became of the messages of a SendAll, by index: the first
// that the sequence yielded is 0. Ranges ascend and don't touch. Each index
// below Drawn is in exactly one of Accepted, Refused, Unsent and Unknown.
//
// To resume, send from the sequence what isn't in Accepted or Refused; what is
// in Unknown may be there already.
type Report struct {
	// Drawn is how many messages were taken from the sequence: that of this
	// index, if there is one, was not looked at.
	Drawn int64
	// Accepted are those that the service confirmed.
	Accepted []sluice.Range
	// Refused can't be sent as they are; the error has a [*RefusedError] for
	// each of the first ones.
	Refused []sluice.Range
	// Unsent were not accepted, for certain.
	Unsent []sluice.Range
	// Unknown were sent, but whether they were accepted, nobody answered.
	Unknown []sluice.Range
	// Repeated are those of Accepted and Unknown that were sent again after an
	// answer was lost, and may be there more than once.
	Repeated []sluice.Range

	Figures
}

// Figures are what a sender has done.
type Figures struct {
	Messages int64 // accepted
	Batches  int64 // accepted
	Bytes    int64 // of these batches, as encoded
	Retries  int64 // batches sent again
	Oversize int64 // batches that were refused for their size
}

// RefusedError is a message that can't be sent as it is.
type RefusedError struct {
	Index int64 // in the sequence
	Size  int   // bytes of a batch of it alone, or of its body where the transport doesn't know
	Err   error // [ErrTooLarge], or why else
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("message %d of %d bytes: %v", e.Index, e.Size, e.Err)
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// total is how many indices there are in ranges that don't overlap.
func total(list []sluice.Range) (n int64) {
	for _, r := range list {
		n += r.Last - r.First + 1
	}
	return n
}

// extend appends an index, to the last range if it follows that.
func extend(list []sluice.Range, index int64) []sluice.Range {
	if n := len(list); n > 0 && list[n-1].Last+1 == index {
		list[n-1].Last = index
		return list
	}
	return append(list, sluice.Range{First: index, Last: index})
}

// union sorts ranges and joins those that touch or overlap.
func union(list []sluice.Range) []sluice.Range {
	slices.SortFunc(list, func(a, b sluice.Range) int { return cmp.Compare(a.First, b.First) })
	joined := list[:0]
	for _, r := range list {
		if n := len(joined); n > 0 && r.First <= joined[n-1].Last+1 {
			joined[n-1].Last = max(joined[n-1].Last, r.Last)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// rest is what of 0 to n-1 is in none of the lists.
func rest(n int64, lists ...[]sluice.Range) []sluice.Range {
	var left []sluice.Range
	next := int64(0)
	for _, r := range union(slices.Concat(lists...)) {
		if r.First > next {
			left = append(left, sluice.Range{First: next, Last: r.First - 1})
		}
		next = r.Last + 1
	}
	if next < n {
		left = append(left, sluice.Range{First: next, Last: n - 1})
	}
	return left
}
