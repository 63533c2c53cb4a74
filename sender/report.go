package sender

import (
	"cmp"
	"fmt"
	"slices"
)

// Report tells what became of the messages of a SendAll, by index: the first
// that the sequence yielded is 0. Ranges ascend and don't touch. Each index
// below Taken is in exactly one of Accepted, Refused, Unsent and Unknown.
//
// To resume, send from the sequence what isn't in Accepted or Refused; what is
// in Unknown may be there already.
type Report struct {
	// Taken is how many messages were taken from the sequence: that of this
	// index, if there is one, was not looked at.
	Taken int64
	// Accepted are those that the service confirmed.
	Accepted []IndexRange
	// Refused can't be sent as they are; the error has a [*RejectedError] for
	// each of the first ones.
	Rejected []IndexRange
	// Unsent were not accepted, for certain.
	Unsent []IndexRange
	// Unknown were sent, but whether they were accepted, nobody answered.
	Unknown []IndexRange
	// PossibleDuplicates are those of Accepted and Unknown that were sent again after an
	// answer was lost, and may be there more than once.
	PossibleDuplicates []IndexRange

	Stats
}

// Stats are what a sender has done.
type Stats struct {
	Messages int64 // accepted
	Batches  int64 // accepted
	Bytes    int64 // of these batches, as encoded
	Retries  int64 // batches sent again
	TooLarge int64 // batches that were refused for their size
}

// IndexRange is the messages from First to Last, both included.
type IndexRange struct{ First, Last int64 }

// RejectedError is a message that can't be sent as it is.
type RejectedError struct {
	Index int64 // in the sequence
	Size  int   // bytes of a batch of it alone, or of its body where the transport doesn't know
	Err   error // [ErrTooLarge], or why else
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("message %d of %d bytes: %v", e.Index, e.Size, e.Err)
}

// Unwrap returns Err.
func (e *RejectedError) Unwrap() error { return e.Err }

// total is how many indices there are in ranges that don't overlap.
func total(list []IndexRange) (n int64) {
	for _, r := range list {
		n += r.Last - r.First + 1
	}
	return n
}

// extend appends an index, to the last range if it follows that.
func extend(list []IndexRange, index int64) []IndexRange {
	if n := len(list); n > 0 && list[n-1].Last+1 == index {
		list[n-1].Last = index
		return list
	}
	return append(list, IndexRange{First: index, Last: index})
}

// union sorts ranges and joins those that touch or overlap.
func union(list []IndexRange) []IndexRange {
	slices.SortFunc(list, func(a, b IndexRange) int { return cmp.Compare(a.First, b.First) })
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
func rest(n int64, lists ...[]IndexRange) []IndexRange {
	var left []IndexRange
	next := int64(0)
	for _, r := range union(slices.Concat(lists...)) {
		if r.First > next {
			left = append(left, IndexRange{First: next, Last: r.First - 1})
		}
		next = r.Last + 1
	}
	if next < n {
		left = append(left, IndexRange{First: next, Last: n - 1})
	}
	return left
}
