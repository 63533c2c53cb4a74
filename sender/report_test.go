package sender

import (
	"math/rand/v2"
	"testing"
)

// TestRanges compares the operations on ranges with the same operations on sets.
func TestRanges(t *testing.T) {
	const n = 60
	set := func(lists ...[]IndexRange) (in [n]bool) {
		for _, list := range lists {
			for _, r := range list {
				for i := r.First; i <= r.Last; i++ {
					in[i] = true
				}
			}
		}
		return in
	}
	tidy := func(list []IndexRange) bool {
		for i, r := range list {
			if r.Last < r.First || i > 0 && r.First <= list[i-1].Last+1 {
				return false
			}
		}
		return true
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var lists [2][]IndexRange
		for range r.IntN(12) {
			first := r.Int64N(n)
			l := &lists[r.IntN(2)]
			*l = append(*l, IndexRange{First: first, Last: min(first+r.Int64N(9), n-1)})
		}
		want := set(lists[:]...)
		left := rest(n, lists[:]...)
		for i, in := range set(left) {
			if in == want[i] {
				t.Fatalf("rest of %v is %v", lists, left)
			}
		}
		joined := union(append(lists[0], lists[1]...))
		if !tidy(joined) || !tidy(left) || set(joined) != want {
			t.Fatalf("union of %v is %v, rest %v", lists, joined, left)
		}
	}
}
