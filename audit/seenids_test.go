package audit

import (
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/stamp"
)

// TestSeenIDsAreBounded: once there are too many, that is known.
func TestSeenIDsAreBounded(t *testing.T) {
	stamps := stamp.NewReader([]stamp.Source{{Topic: "s"}})
	s := seenIDs{bound: 10}
	message := func(n int64) *sluice.Event {
		e := &sluice.Event{Properties: map[string]any{}}
		stamp.Stamp{ID: stamp.CausationID{Source: "s@1", Partition: "0", Sequence: 100 * n}, Epoch: 1, Low: -1}.SetTo(e.Properties)
		return e
	}
	for n := range int64(10) { // one word each, and one for the origin
		if s.add(stamps, message(n)) || s.full {
			t.Fatalf("id %d is there, full %t", n, s.full)
		}
	}
	if !s.add(stamps, message(0)) || !s.full {
		t.Errorf("the bound is passed, full %t", s.full)
	}
}
