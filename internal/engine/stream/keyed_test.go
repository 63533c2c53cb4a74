package stream_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Records of one key of their own are never in flight together, though their events have
// different keys.
func TestStreamKeyed(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 20, func(i int) string { return string(rune('a' + i)) })
		sink := &countingSink{}
		_, stop := s.Pour(sluice.Keyed[*sluice.Event](sink, func(*sluice.Event) string { return "one" }), nil, sluice.Config{})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if sink.most != 1 || len(sink.order) != 20 || !slices.IsSorted(sink.order) {
			t.Errorf("%d records in flight, in the order %v", sink.most, sink.order)
		}
	})
}

// countingSink takes 100 ms for each record.
type countingSink struct {
	mu             sync.Mutex
	inFlight, most int
	order          []int64
}

func (c *countingSink) Submit(_ context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	c.order = append(c.order, e.Sequence)
	time.AfterFunc(100*time.Millisecond, func() {
		c.mu.Lock()
		c.inFlight--
		c.mu.Unlock()
		done(driver.WriteResult{})
	})
}
