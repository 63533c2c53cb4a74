package partition

import (
	"sync"
	"testing"
)

// Nobody reads a part of one activity with a part of another.
func TestTrackIsReadWhole(t *testing.T) {
	var tr track
	activities := []*activity{{"a", ""}, {"b", ""}, {"c", ""}}
	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := int64(0); ; n++ {
			select {
			case <-ended:
				return
			default:
				tr.set(activities[n%3], n%3, 10+n%3)
			}
		}
	})
	seen, mixed := 0, 0
	for seen < 200_000 {
		if what, _, first, events := tr.load(); what != nil {
			if seen++; what != activities[first] || events != 10+first {
				mixed++
			}
		}
	}
	close(ended)
	writing.Wait()
	if mixed > 0 {
		t.Errorf("%d of %d reads are of two activities", mixed, seen)
	}
}
