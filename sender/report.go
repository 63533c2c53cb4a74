package sender

import (
	"cmp"
	"fmt"
	"slices"
)

// Report says what became of the messages of one SendAll, by index: the first
// message of the sequence has index 0. Ranges are sorted and don't touch. Each
// index below Taken is in exactly one of Accepted, Rejected, Unsent and Unknown.
//
// To resume, send the messages of the sequence that are not in Accepted or
// Rejected. Those in Unknown may be stored already.
type Report struct {
	// Taken is how many messages were taken from the sequence. The message of this
	// index, if there is one, wasn't looked at.
	Taken int64
	// Accepted are the messages that the service has confirmed.
	Accepted []IndexRange
	// Rejected are the messages that can't be sent as they are. The error of
	// SendAll has a [*RejectedError] for each of the first 16.
	Rejected []IndexRange
	// Unsent are the messages that the service certainly hasn't stored.
	Unsent []IndexRange
	// Unknown are the messages that were sent without an answer: they may be
	// stored.
	Unknown []IndexRange
	// PossibleDuplicates are the messages of Accepted and Unknown that were sent
	// again after an answer was lost: they may be stored more than once.
	PossibleDuplicates []IndexRange

	Stats
}

// Stats counts what a sender has done.
type Stats struct {
	Messages int64 // accepted
	Batches  int64 // accepted
	Bytes    int64 // of the accepted batches, as encoded
	Retries  int64 // batches sent again
	TooLarge int64 // batches that the service refused as too large
}

// IndexRange is the messages from First to Last, both included.
type IndexRange struct{ First, Last int64 }

// RejectedError is a message that can't be sent as it is.
type RejectedError struct {
	Index int64 // in the sequence
	Size  int   // bytes of a batch of it alone, or of its body if the transport doesn't know
	Body  int   // bytes of its body
	Err   error // the reason, such as [ErrTooLarge]
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("message %d (%d bytes) rejected: %v", e.Index, e.Size, e.Err)
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

// rest is the indices from 0 to n-1 that are in none of the lists.
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
