package engine

import (
	"fmt"
	"time"
)

// MappingFor is how long an event waits for another that the mapping maps, if it has rejected fewer
// than BrakeAfter.
const MappingFor = 30 * time.Second

// MappingTrial is what is known of mappings that have mapped no event yet.
type MappingTrial struct {
	Rejected map[int64]bool // numbers of the events that they have rejected
	Began    time.Duration  // when the first was, by Clock.Elapsed
	Reported bool           // that events wait
}

// Note counts an event that a mapping has rejected, once.
func (t *MappingTrial) Note(sequence int64, now time.Duration) {
	if t.Rejected == nil {
		t.Rejected, t.Began = map[int64]bool{}, now
	}
	t.Rejected[sequence] = true
}

// Wrong reports whether so many events were rejected that the mapping is probably wrong.
func (t *MappingTrial) Wrong() bool { return len(t.Rejected) >= BrakeAfter }

// HeldError is reported while a partition is held because its mapping is probably wrong.
func (t *MappingTrial) HeldError(last error) error {
	return fmt.Errorf("partition is held: the mapping has mapped none of %d events, so it is probably wrong: correct it; events wait and none becomes a dead letter; they are tried until one is mapped; last error: %w", len(t.Rejected), last)
}

// WaitError is reported once if an event has waited for a second: until then another partition may
// have one that the mapping maps.
func (t *MappingTrial) WaitError(last error) error {
	return fmt.Errorf("the mapping has mapped no event yet; the event waits up to %v for one that it maps, then it becomes a dead letter: %w", MappingFor, last)
}
