package sluicetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// brokenSparseSources are sources of a sparse topic that are wrong in one way each.
func brokenSparseSources() (drivers []suite.Broken[storetest.SourceHarness]) {
	add := func(how string, bend func(b *bentSource, good *Hub)) {
		drivers = append(drivers, suite.Broken[storetest.SourceHarness]{How: how, New: func(testing.TB) storetest.SourceHarness {
			good := NewHub(testGroup, 2)
			b := &bentSource{Hub: good}
			h := sparseHarness(good)
			h.Connect = func(testing.TB) driver.Source { return b }
			bend(b, good)
			return h
		}})
	}
	read := func(how string, read func(ctx context.Context, r *reader, max int, events []*sluice.Event) ([]*sluice.Event, error)) {
		add(how, func(b *bentSource, good *Hub) {
			b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
				events, err := r.Read(ctx, max)
				if err != nil {
					return events, err
				}
				return read(ctx, r, max, events)
			}
		})
	}
	each := func(how string, change func(e *sluice.Event)) {
		read(how, func(_ context.Context, _ *reader, _ int, events []*sluice.Event) ([]*sluice.Event, error) {
			for _, e := range events {
				change(e)
			}
			return events, nil
		})
	}
	open := func(how string, open func(ctx context.Context, good *Hub, partition string, after sluice.Position, epoch int64) (driver.Reader, error)) {
		add(how, func(b *bentSource, good *Hub) {
			b.open = func(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
				return open(ctx, good, partition, after, epoch)
			}
		})
	}

	add("does not say that numbers may be missing", func(b *bentSource, good *Hub) {
		b.describe = func(ctx context.Context) (sluice.Topic, error) {
			topic, err := good.Describe(ctx)
			topic.Sparse = false
			return topic, err
		}
	})
	read("takes a gap for a loss", func(_ context.Context, r *reader, _ int, events []*sluice.Event) ([]*sluice.Event, error) {
		for i, e := range events[1:] {
			if e.Sequence != events[i].Sequence+1 {
				return nil, &driver.RetentionError{Partition: r.log.id, After: events[i].Sequence, First: e.Sequence}
			}
		}
		return events, nil
	})
	add("returns no marker at the end", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			for {
				events, err := r.Read(ctx, max)
				events = slices.DeleteFunc(events, func(e *sluice.Event) bool { return e.Control })
				if err != nil || len(events) > 0 {
					return events, err
				}
			}
		}
	})
	add("returns the marker at the end again and again", func(b *bentSource, good *Hub) {
		var last *sluice.Event
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			if last != nil {
				return []*sluice.Event{last}, nil
			}
			events, err := r.Read(ctx, max)
			if err == nil && events[len(events)-1].Control {
				last = events[len(events)-1]
			}
			return events, err
		}
	})
	read("returns a marker for each number", func(_ context.Context, r *reader, _ int, events []*sluice.Event) (all []*sluice.Event, _ error) {
		for _, e := range events {
			for n := e.Sequence - 1; e.Control && n < e.Sequence; n++ {
				all = append(all, &sluice.Event{Partition: e.Partition, Sequence: n, Control: true})
			}
			all = append(all, e)
		}
		return all, nil
	})
	each("returns a marker of a number too low", func(e *sluice.Event) {
		if e.Control {
			e.Sequence--
		}
	})
	each("does not count the numbers that it passed", func(e *sluice.Event) { e.Passed = nil })
	each("counts an event among the numbers that it passed", func(e *sluice.Event) {
		if e.Passed != nil {
			e.Passed.Control++
		}
	})
	each("returns numbers without an event as events", func(e *sluice.Event) { e.Control = false })
	each("gives a marker a body", func(e *sluice.Event) {
		if e.Control {
			e.Body = []byte("commit")
		}
	})
	open("takes a position at the end that has no event for one past the end", func(ctx context.Context, good *Hub, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
		good.mu.Lock()
		p, err := good.find(partition)
		past := err == nil && len(p.events) > 0 && after.Sequence == p.last.Sequence && p.events[len(p.events)-1].Control
		good.mu.Unlock()
		if past {
			return nil, sluice.ErrPastEnd
		}
		return good.Open(ctx, partition, after, epoch)
	})
	open("takes all that is gone for numbers without an event", func(ctx context.Context, good *Hub, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
		if b, err := good.Bounds(ctx, partition); err == nil && after.Sequence < b.First-1 {
			after.Sequence = b.First - 1
		}
		return good.Open(ctx, partition, after, epoch)
	})
	open("does not compare the leader's epoch", func(ctx context.Context, good *Hub, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
		after.Offset = ""
		return good.Open(ctx, partition, after, epoch)
	})
	open("names too little as lost", func(ctx context.Context, good *Hub, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
		r, err := good.Open(ctx, partition, after, epoch)
		if lost, is := errors.AsType[*driver.TruncatedError](err); is {
			lost.End++
		}
		return r, err
	})
	add("reads on after a loss", func(b *bentSource, good *Hub) {
		b.read = func(ctx context.Context, r *reader, max int) ([]*sluice.Event, error) {
			good.mu.Lock()
			if lost := r.err != nil && !errors.Is(r.err, sluice.ErrStolen) && r.sequence > r.log.last.Sequence-3; lost && len(r.log.readers) == 0 {
				r.sequence, r.err, r.gone = r.log.last.Sequence-1, nil, make(chan struct{})
			}
			good.mu.Unlock()
			return r.Read(ctx, max)
		}
	})

	each("has headers in another order", func(e *sluice.Event) { slices.Reverse(e.Headers) })
	each("has no properties for headers", func(e *sluice.Event) { e.Properties = nil })
	each("has properties of the first of several headers", func(e *sluice.Event) {
		if len(e.Headers) > 0 {
			e.Properties[e.Headers[0].Name] = string(e.Headers[0].Value)
		}
	})
	each("does not know null headers", func(e *sluice.Event) {
		for i := range e.Headers {
			e.Headers[i].Value = append([]byte{}, e.Headers[i].Value...)
		}
	})
	each("takes keys for texts", func(e *sluice.Event) { e.Key = string(bytes.ToValidUTF8([]byte(e.Key), []byte("?"))) })
	each("does not know empty keys", func(e *sluice.Event) { e.EmptyKey = false })
	each("takes null for empty", func(e *sluice.Event) {
		if e.Body == nil && !e.Control {
			e.Body = []byte{}
		}
	})
	each("takes empty for null", func(e *sluice.Event) {
		if len(e.Body) == 0 {
			e.Body = nil
		}
	})
	each("does not say when an event was created", func(e *sluice.Event) { e.Created = time.Time{} })
	return drivers
}
