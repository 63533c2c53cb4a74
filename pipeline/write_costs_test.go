package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// costColumns and costEvents are those of the benchmark of writing.
const costColumns = `
hub_partition: partition
sequence_number: sequence
device: body.device
at: {from: body.at, type: timestamp}
delay: {from: body.delay, type: integer}
distance: {from: body.distance, type: integer}
payload: body.payload`

func costEvents(n int) []*sluice.Event {
	events := make([]*sluice.Event, n)
	for i := range events {
		body := fmt.Sprintf(`{"device":"gauge-%04d","at":"2026-11-23T21:00:00.123456Z","delay":%d,"distance":%d,"payload":"%s"}`,
			i%10_000, i%500-20, 1000+i%2000, strings.Repeat("Nothing of this is copied. ", 32))
		events[i] = &sluice.Event{Partition: "0", Sequence: int64(i + 1000), Body: []byte(body)}
	}
	return events
}

// The values of a row for COPY take no allocation. Those for database/sql take one each, of a few
// bytes: none has a copy of a text of the body.
func TestMappingAllocations(t *testing.T) {
	m, events := mappingOf(t, costColumns), costEvents(1000)
	cells := make(copyCells, len(m.columns))
	row, i := m.each(events, cells.box, nil), 0
	if n := testing.AllocsPerRun(len(events)-2, func() {
		if _, err := row(i); err != nil {
			t.Fatal(err)
		}
		i++
	}); n > 0 {
		t.Errorf("a row for COPY takes %v allocations", n)
	}

	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := m.rows(events, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	if each := result.AllocsPerOp() / int64(len(events)); each > int64(len(m.columns)) {
		t.Errorf("a row for database/sql takes %d allocations for %d values", each, len(m.columns))
	}
	if each := result.AllocedBytesPerOp() / int64(len(events)); each > 300 {
		t.Errorf("a row for database/sql takes %d bytes, of an event of %d", each, len(events[0].Body))
	}
}
