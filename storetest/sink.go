package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// SinkHarness is a sink under test, and the store behind it. The records of a
// case have numbers from 0 on.
type SinkHarness[R any] struct {
	Sink driver.Sink[R]
	// Record makes the record with a number.
	Record func(i int) R
	// Written reports whether the record with a number has taken effect.
	Written func(i int) bool
	// Block makes the store hold up whatever reaches it, until it is released.
	Block func() (release func())
	// Refuse makes the store refuse the record with a number, and no other, every
	// time.
	Refuse func(i int)
	// Break makes the store fail, until repair is called.
	Break func() (repair func())
}

// TestSink is the conformance suite of [driver.Sink]. Every case asks new for a
// sink on an empty store.
func TestSink[R any](t *testing.T, new func(t testing.TB) SinkHarness[R]) {
	suite.Run(t, sinkChecks[R](), new)
}

// outcomes collects what becomes of records.
type outcomes struct {
	mu      sync.Mutex
	times   map[int]int
	results map[int]driver.WriteResult

	submitting sync.WaitGroup
}

func (o *outcomes) done(t testing.TB, i int) func(driver.WriteResult) {
	return func(r driver.WriteResult) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.times == nil {
			o.times, o.results = map[int]int{}, map[int]driver.WriteResult{}
		}
		if o.times[i]++; o.times[i] > 1 {
			t.Errorf("record %d is done %d times", i, o.times[i])
		}
		if r.Cost < 0 {
			t.Errorf("record %d cost %v", i, r.Cost)
		}
		o.results[i] = r
	}
}

// all waits until n records are done, and suite.Moment for what must not follow.
func (o *outcomes) all(t testing.TB, n int) map[int]driver.WriteResult {
	t.Helper()
	suite.Eventually(t, "every record is done", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.times) == n
	})
	suite.Settled[int](nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.results
}

// submit hands in the records from first up to, but not including, last. It
// fails if that blocks.
func (h SinkHarness[R]) submit(t testing.TB, ctx context.Context, o *outcomes, first, last int) {
	t.Helper()
	submitted := make(chan struct{})
	o.submitting.Go(func() {
		defer close(submitted)
		for i := first; i < last; i++ {
			h.Sink.Submit(ctx, h.Record(i), o.done(t, i))
		}
	})
	select {
	case <-submitted:
	case <-suite.Context(t).Done():
		t.Fatalf("Submit blocks")
	}
}

// block is Block for a test, which may end before it has released.
func (h SinkHarness[R]) block(t testing.TB, blocked ...*outcomes) (release func()) {
	release = sync.OnceFunc(h.Block())
	for _, o := range blocked {
		t.Cleanup(o.submitting.Wait)
	}
	t.Cleanup(release) // first, for cleanups run backwards
	return release
}

func sinkChecks[R any]() []suite.Check[SinkHarness[R]] {
	return []suite.Check[SinkHarness[R]]{
		{Name: "Once", Run: func(t testing.TB, h SinkHarness[R]) {
			const workers, each = 8, 200
			var o outcomes
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := w * each; i < (w+1)*each; i++ {
						h.Sink.Submit(t.Context(), h.Record(i), o.done(t, i))
					}
				})
			}
			all.Wait()
			for i, r := range o.all(t, workers*each) {
				if r.Err != nil || !h.Written(i) {
					t.Errorf("record %d: %v, written: %v", i, r.Err, h.Written(i))
				}
			}
		}},
		{Name: "EndedContext", Run: func(t testing.TB, h SinkHarness[R]) {
			ended, end := context.WithCancel(t.Context())
			end()
			var o outcomes
			h.submit(t, ended, &o, 0, 10)
			for i, r := range o.all(t, 10) {
				if suite.ErrorIs(t, "a record whose context has ended", r.Err, context.Canceled); h.Written(i) {
					t.Errorf("record %d was sent after its context had ended", i)
				}
			}
		}},
		{Name: "ContextEndsWhileQueued", Run: func(t testing.TB, h SinkHarness[R]) {
			const n = 5000 // more than a sink has on the way at once
			var o outcomes
			release := h.block(t, &o)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			h.submit(t, ctx, &o, 0, n)
			end()
			suite.Settled[int](nil)
			release()
			queued := 0
			for i, r := range o.all(t, n) {
				switch {
				case r.Err == nil && !h.Written(i):
					t.Errorf("record %d is done and not written", i)
				case errors.Is(r.Err, context.Canceled) && h.Written(i):
					t.Errorf("record %d was sent after its context had ended", i)
				case errors.Is(r.Err, context.Canceled):
					queued++
				case r.Err != nil:
					t.Errorf("record %d: %v", i, r.Err)
				}
			}
			if queued == 0 {
				t.Errorf("all records were sent: this shows nothing")
			}
		}},
		{Name: "OtherContextsGoOn", Run: func(t testing.TB, h SinkHarness[R]) {
			var gone, rest outcomes
			release := h.block(t, &gone, &rest)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			for i := range 100 {
				h.submit(t, ctx, &gone, 2*i, 2*i+1)
				h.submit(t, t.Context(), &rest, 2*i+1, 2*i+2)
			}
			end()
			release()
			gone.all(t, 100)
			for i, r := range rest.all(t, 100) {
				if r.Err != nil || !h.Written(i) {
					t.Errorf("record %d: %v, written: %v", i, r.Err, h.Written(i))
				}
			}
		}},
		{Name: "SubmitQueues", Run: func(t testing.TB, h SinkHarness[R]) {
			var o outcomes
			release := h.block(t, &o)
			h.submit(t, t.Context(), &o, 0, 2000)
			release()
			o.all(t, 2000)
		}},
		{Name: "SubmitFromDone", Run: func(t testing.TB, h SinkHarness[R]) {
			const n = 100
			var o outcomes
			var next func(i int)
			next = func(i int) {
				done := o.done(t, i)
				follow := sync.OnceFunc(func() { next(i + 1) })
				h.Sink.Submit(t.Context(), h.Record(i), func(r driver.WriteResult) {
					if i+1 < n {
						follow()
					}
					done(r)
				})
			}
			next(0)
			for i, r := range o.all(t, n) {
				suite.NoError(t, "submit", r.Err)
				if !h.Written(i) {
					t.Errorf("record %d is done and not written", i)
				}
			}
		}},
		{Name: "Refused", Run: func(t testing.TB, h SinkHarness[R]) {
			h.Refuse(5)
			var o outcomes
			h.submit(t, t.Context(), &o, 0, 10)
			for i, r := range o.all(t, 10) {
				switch {
				case i == 5:
					suite.ErrorIs(t, "a record that the store refuses", r.Err, sluice.ErrRejected)
				case r.Err != nil || !h.Written(i):
					t.Errorf("a neighbour, record %d: %v, written: %v", i, r.Err, h.Written(i))
				}
			}
		}},
		{Name: "Outage", Run: func(t testing.TB, h SinkHarness[R]) {
			repair := h.Break()
			var o outcomes
			h.submit(t, t.Context(), &o, 0, 10)
			for i, r := range o.all(t, 10) {
				_, retry := errors.AsType[*driver.RetryError](r.Err)
				if !retry && !errors.Is(r.Err, sluice.ErrOutage) {
					t.Errorf("record %d, while the store fails: %v", i, r.Err)
				}
				if errors.Is(r.Err, sluice.ErrRejected) {
					t.Errorf("record %d is held to account for the store: %v", i, r.Err)
				}
			}
			repair()
			var again outcomes
			h.submit(t, t.Context(), &again, 0, 10)
			for i, r := range again.all(t, 10) {
				if r.Err != nil || !h.Written(i) {
					t.Errorf("record %d, once the store works again: %v, written: %v", i, r.Err, h.Written(i))
				}
			}
		}},
	}
}
