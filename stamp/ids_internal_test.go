package stamp

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// A feeding stage whose watermark never moves fills the bound of ids, and loses its own: nothing of
// a stage that takes less than its share. The bound is reported.
func TestShareOfIDs(t *testing.T) {
	t.Parallel()
	r := Memory{belief: newBelief([]Source{{Topic: "flights"}, {Topic: "forged"}})}
	if err := r.Load(nil, -1); err != nil {
		t.Fatal(err)
	}
	var at int64
	duplicates := func(topic string, partition int, words int64) (n int) {
		stamp := Stamp{ID: CausationID{Source: topic + "@1", Partition: fmt.Sprint(partition)}, Epoch: 1, Low: -1}
		e := &driver.Event{Properties: map[string]any{}, Enqueued: time.Unix(0, 0)}
		for i := range words {
			stamp.ID.Sequence = i << 10 // a word each
			stamp.SetTo(e.Properties)
			e.Sequence, at = at, at+1
			v, err := r.decide(e)
			if err != nil {
				t.Fatal(err)
			}
			if v.duplicate {
				n++
			}
		}
		return n
	}
	const honest = 20_000 // more than any of the partitions below has in the end
	duplicates("flights", 0, honest)
	for n := range 128 {
		duplicates("forged", n, int64(maxDedupWords)/100)
	}
	if n := duplicates("flights", 0, honest); n != honest {
		t.Errorf("%d of %d repeated messages are duplicates", n, honest)
	}
	if list := r.full.errors(); len(list) != 1 {
		t.Errorf("reports: %q, want one", list)
	}
}
