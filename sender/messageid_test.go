package sender_test

import (
	"strconv"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/sender"
)

// TestGeneratedIDs sends messages without ids, some of them twice: each has an id
// of its own, across all SendAlls, and its duplicates have the same.
func TestGeneratedIDs(t *testing.T) {
	srv := startFaulty(t)
	addFaults(t, srv, emulator.Fault{Kind: emulator.FaultLoseAnswer, On: emulator.OnSend, Times: 1})
	const count = 2000
	for range 2 {
		_, err := sender.New(open(t, srv, nil), fastRetries()).SendAll(testContext(t), func(yield func(sender.Message) bool) {
			for i := range count {
				if !yield(sender.Message{Key: strconv.Itoa(i % 7), Body: strconv.AppendInt(make([]byte, 300), int64(i), 10)}) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	bodies, events := map[string]string{}, 0
	for p := range faultyPartitions {
		for _, e := range stored(t, srv, p) {
			events++
			if e.MessageID == nil || len(*e.MessageID) < 15 {
				t.Fatalf("an id of %v", e.MessageID)
			}
			if other, known := bodies[*e.MessageID]; known && other != string(e.Body) {
				t.Fatalf("two messages have the id %s", *e.MessageID)
			}
			bodies[*e.MessageID] = string(e.Body)
		}
	}
	if len(bodies) != 2*count || events <= 2*count {
		t.Errorf("%d ids of %d messages, sent %d times", len(bodies), 2*count, events)
	}
}
