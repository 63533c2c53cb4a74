package driver_test

import (
	"context"
	"fmt"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// lines is a driver of a log: a topic with one partition, which holds lines of text and does not
// grow. It has no epochs, no offsets and no times.
type lines []string

func (l lines) Describe(context.Context) (driver.Topic, error) {
	group := driver.Group{Namespace: "example", Topic: "lines", Name: "$Default"}
	return driver.Topic{Group: group, Incarnation: "1", Partitions: []string{"0"}}, nil
}

func (l lines) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{First: 0, Last: driver.Position{Sequence: int64(len(l)) - 1}}, nil
}

func (l lines) Seek(_ context.Context, _ string, start driver.Start, _ int64) (driver.Position, error) {
	end := int64(len(l)) - 1
	switch start.Kind {
	case driver.StartEarliest:
		return driver.Origin, nil
	case driver.StartLatest:
		return driver.Position{Sequence: end}, nil
	case driver.StartSequence:
		return driver.Position{Sequence: min(max(start.Sequence-1, -1), end)}, nil
	}
	return driver.Unset, fmt.Errorf("start %v: lines have sequence numbers only: %w", start, driver.ErrRefused)
}

func (l lines) Open(_ context.Context, _ string, after driver.Position, _ int64) (driver.Reader, error) {
	if after.Sequence >= int64(len(l)) {
		return nil, fmt.Errorf("open at %v, the newest line is %d: %w", after, len(l)-1, driver.ErrPastEnd)
	}
	closed, end := context.WithCancel(context.Background())
	return &reader{lines: l, next: after.Sequence + 1, closed: closed, end: end}, nil
}

type reader struct {
	lines  lines
	next   int64
	closed context.Context
	end    context.CancelFunc
}

func (r *reader) Read(ctx context.Context, max int) ([]*driver.Event, error) {
	var events []*driver.Event
	for ; r.next < int64(len(r.lines)) && len(events) < max; r.next++ {
		events = append(events, &driver.Event{Partition: "0", Sequence: r.next, Body: []byte(r.lines[r.next])})
	}
	if events != nil {
		return events, nil
	}
	select { // no line follows
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.closed.Done():
		return nil, fmt.Errorf("partition 0: the reader is closed")
	}
}

func (r *reader) Close(context.Context) error {
	r.end()
	return nil
}

// A driver of a log, and a consumer that reads it.
func Example() {
	store := new(sluicetest.Store)
	last := make(chan struct{})
	handler := sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
		fmt.Printf("%d: %s\n", e.Sequence, e.Body)
		if e.Sequence == 2 {
			close(last)
		}
		return tx.Insert("lines", string(e.Body))
	})
	source := lines{"to be", "or not", "to be"}
	consumer, err := sluice.New(source, new(sluicetest.Leases), sluice.Transactional(store, handler), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		<-last
		consumer.Stop(context.Background()) // waits for the handler, and commits
	}()
	if err := consumer.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(store.Rows("lines"))
	// Output:
	// 0: to be
	// 1: or not
	// 2: to be
	// [to be or not to be]
}
