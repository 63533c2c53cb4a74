package partition

import (
	"context"

	"github.com/sluice-go/sluice/driver"
)

// countingReader checks that a reader accounts for every number of its partition: each is an
// event's, or driver.Event.Passed of the next event or marker counts it. So a number that was
// passed by mistake, in a driver or in a log, halts the partition; the checkpoint does not pass it.
type countingReader struct {
	driver.Reader
	a    *Assignment
	last int64 // the last number that is accounted for
}

// Read implements [driver.Reader].
func (r *countingReader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	events, err := r.Reader.Read(ctx, max)
	passed := driver.Passed{}
	for i, e := range events {
		missing := e.Sequence - r.last - e.Passed.Total()
		if !e.Control {
			missing--
		}
		if missing != 0 {
			return events[:i], &driver.RetentionError{Partition: r.a.Lease.Partition, After: r.last, First: e.Sequence, Held: true,
				Hint: "the reader does not say why: this is a fault of the log's driver, report it"}
		}
		r.last = e.Sequence
		passed.Add(e.Passed)
	}
	if n := len(events); n > 0 && passed.Total() > 0 {
		r.a.Observe(driver.Observation{Kind: driver.KindPassed, To: events[n-1].Position(), Passed: passed})
	}
	return events, err
}
