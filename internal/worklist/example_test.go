package worklist_test

import (
	"fmt"

	"github.com/sluice-go/sluice/internal/worklist"
)

// Offsets 0 to 7 have arrived, and 0 1 2 5 6 7 are done: the checkpoint is 2.
// Once 3 and 4 are done too, it is 7.
func Example() {
	list := worklist.New[int](100)
	var slots []uint64
	for offset := range 8 {
		slot, _ := list.Arrive(offset)
		slots = append(slots, slot)
	}

	for _, offset := range []int{5, 1, 7, 0, 2, 6} {
		list.Done(slots[offset])
	}
	checkpoint, _ := list.Low()
	fmt.Println("checkpoint", checkpoint)
	for first, last := range list.Runs() {
		fmt.Println("done above it:", first, "to", last)
	}
	oldest, _ := list.Oldest()
	fmt.Println("in flight:", list.InFlight(), "the oldest", oldest)

	list.Done(slots[4])
	list.Done(slots[3])
	checkpoint, _ = list.Low()
	fmt.Println("checkpoint", checkpoint)

	// Output:
	// checkpoint 2
	// done above it: 5 to 7
	// in flight: 2 the oldest 3
	// checkpoint 7
}
