package sender

import (
	"sync"
	"sync/atomic"
)

// sizeEstimate is what is assumed to fit into a batch.
type sizeEstimate struct {
	corrected atomic.Bool // a refusal has changed it; spares the lock a message

	mu     sync.Mutex
	limit  int // bytes of a batch
	header int // bytes of a message beside its body; 0 if sizes are known

	// The limit is between taken and refused, which are sizes of batches; 0: none is known.
	taken, refused int
	found          bool // to 1 %
	cut            int  // percent by which the next refusal cuts the limit that was found
}

const (
	cutLimit     = 5 // percent by which a refusal cuts a limit that was not found yet
	limitFound   = 1 // percent between the limit and a refused batch
	fullBatch    = 98
	headerRaised = 4 // a header is raised by a quarter at least
)

func (s *sizeEstimate) current() (limit, header int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.header
}

// refusedAsTooLarge corrects the estimate by a refused batch: if a message has
// more beside its body than the header allows for, the header is raised; if
// not, the limit is cut to what was accepted before, or to 95 % of the batch's
// size, which size computes from a header. A batch above the current limit was
// packed before an earlier correction, and changes nothing.
func (s *sizeEstimate) refusedAsTooLarge(largestOverhead int, size func(header int) int) {
	s.corrected.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if largestOverhead > s.header {
		s.header = max(largestOverhead, s.header+s.header/headerRaised)
		s.taken, s.refused, s.found = 0, 0, false
		return
	}
	n := size(s.header)
	switch {
	case n > s.limit:
	case s.found: // messages differ: what fitted of others does not
		s.limit = n * (100 - s.cut) / 100
		s.cut = min(2*s.cut, cutLimit)
	default:
		s.refused, s.limit = n, n*(100-cutLimit)/100
		if s.taken < n {
			s.limit = max(s.limit, s.taken)
		} else {
			s.taken = 0
		}
	}
}

// accepted raises a limit that was cut, if a full batch was accepted: halfway to
// the refused batch, until the limit is within 1 % of that. A limit that was found
// is not raised again, so that the refusals end.
func (s *sizeEstimate) accepted(size func(header int) int) {
	if !s.corrected.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := size(s.header)
	if n > s.limit || n < s.limit*fullBatch/100 {
		return
	}
	s.cut = limitFound
	if s.refused == 0 || s.found {
		return
	}
	s.taken = n
	if gap := s.refused - s.limit; gap > s.refused*limitFound/100 {
		s.limit += gap / 2
	} else {
		s.found = true
	}
}
