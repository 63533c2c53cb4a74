package storetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// shelf is a store of numbers.
type shelf struct {
	trouble suite.Trouble[int]
	mu      sync.Mutex
	written map[int]bool
}

func newShelf() *shelf { return &shelf{written: map[int]bool{}} }

func (s *shelf) put(i int) error {
	switch {
	case s.trouble.Begin():
		return driver.Outage(errors.New("the shelf is broken"))
	case s.trouble.Refuses(i):
		return driver.Reject(errors.New("not on this shelf"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[i] = true
	return nil
}

func number(e *driver.Event) int {
	i, err := strconv.Atoi(e.Key)
	if err != nil {
		panic(err)
	}
	return i
}

func (s *shelf) harness(sink driver.Sink[*driver.Event]) SinkHarness[*driver.Event] {
	return SinkHarness[*driver.Event]{
		Sink:   sink,
		Record: func(i int) *driver.Event { return &driver.Event{Key: strconv.Itoa(i)} },
		Written: func(i int) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.written[i]
		},
		Block:  s.trouble.Block,
		Refuse: s.trouble.Refuse,
		Break:  s.trouble.Break,
	}
}

func workers(t testing.TB) SinkHarness[*driver.Event] {
	s := newShelf()
	sink, err := sluice.Workers(4, func(_ context.Context, e *driver.Event) error { return s.put(number(e)) })
	if err != nil {
		t.Fatal(err)
	}
	return s.harness(sink)
}

func TestSinkOfWorkers(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { TestSink(t, workers) })
	})
	TestSink(t, workers)
}

// bentSink is a sink whose Submit is a function.
type bentSink func(ctx context.Context, e *driver.Event, done func(driver.WriteResult))

func (b bentSink) Submit(ctx context.Context, e *driver.Event, done func(driver.WriteResult)) {
	b(ctx, e, done)
}

func TestSinkSuiteCatches(t *testing.T) {
	var drivers []suite.Broken[SinkHarness[*driver.Event]]
	add := func(how string, bend func(s *shelf, good driver.Sink[*driver.Event]) bentSink) {
		drivers = append(drivers, suite.Broken[SinkHarness[*driver.Event]]{How: how, New: func(t testing.TB) SinkHarness[*driver.Event] {
			s := newShelf()
			good, err := sluice.Workers(4, func(_ context.Context, e *driver.Event) error { return s.put(number(e)) })
			if err != nil {
				t.Fatal(err)
			}
			return s.harness(bend(s, good))
		}})
	}
	type (
		ctx    = context.Context
		event  = *driver.Event
		done   = func(driver.WriteResult)
		sink   = driver.Sink[*driver.Event]
		result = driver.WriteResult
	)
	add("is done twice", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) { good.Submit(c, e, func(r result) { d(r); d(r) }) }
	})
	add("forgets records", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			if e.Key != "7" {
				good.Submit(c, e, d)
			}
		}
	})
	add("is done before it has written", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) { d(result{}) }
	})
	add("has a cost below zero", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) { good.Submit(c, e, func(r result) { r.Cost = -1; d(r) }) }
	})
	add("does not look at contexts", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) { good.Submit(context.WithoutCancel(c), e, d) }
	})
	add("looks at contexts only once", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			if err := c.Err(); err != nil {
				d(result{Err: err})
				return
			}
			good.Submit(context.WithoutCancel(c), e, d)
		}
	})
	add("sends what has ended, and says it did not", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			good.Submit(context.WithoutCancel(c), e, func(r result) {
				if err := c.Err(); err != nil {
					r.Err = err
				}
				d(r)
			})
		}
	})
	add("gives up all when one context ends", func(s *shelf, good sink) bentSink {
		var mu sync.Mutex
		var first ctx
		return func(c ctx, e event, d done) {
			mu.Lock()
			if first == nil {
				first = c
			}
			c = first
			mu.Unlock()
			good.Submit(c, e, d)
		}
	})
	add("blocks", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			err := c.Err()
			if err == nil {
				err = s.put(number(e))
			}
			d(result{Err: err})
		}
	})
	add("calls done under its lock", func(s *shelf, good sink) bentSink {
		lock := make(chan struct{}, 1)
		return func(c ctx, e event, d done) {
			select {
			case lock <- struct{}{}:
			case <-limitedBy(c):
				return
			}
			err := c.Err()
			if err == nil {
				err = s.put(number(e))
			}
			d(result{Err: err})
			<-lock
		}
	})
	add("blames the record for the store", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			good.Submit(c, e, func(r result) {
				if errors.Is(r.Err, sluice.ErrOutage) {
					r.Err = driver.Reject(r.Err)
				}
				d(r)
			})
		}
	})
	add("calls a refusal an outage", func(s *shelf, good sink) bentSink {
		return func(c ctx, e event, d done) {
			good.Submit(c, e, func(r result) {
				if errors.Is(r.Err, sluice.ErrRejected) {
					r.Err = driver.Outage(errors.New("refused"))
				}
				d(r)
			})
		}
	})
	suite.Caught(t, TestSink, drivers)
}

// limitedBy ends after twice suite.Patience, or with c.
func limitedBy(c context.Context) <-chan struct{} {
	c, cancel := context.WithTimeout(c, 2*suite.Patience)
	context.AfterFunc(c, cancel)
	return c.Done()
}
