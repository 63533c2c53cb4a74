package eventhub

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// Looks at all partitions at once, by several sources of a process, keep to what a namespace
// answers: none of them fails.
func TestManagementRequestsArePaced(t *testing.T) {
	need.RealTime(t)
	b := asAzure(t, emulator.EventHubsAsAzure{RuntimeCalls: 50})
	var looks sync.WaitGroup
	began := time.Now()
	for range 10 {
		s := b.source(nil)
		for range 3 {
			for _, p := range []string{"0", "1", "2", "3"} {
				looks.Go(func() {
					if _, err := s.Bounds(b.now, p); err != nil {
						t.Error(err)
					}
					if _, err := s.Describe(b.now); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	looks.Wait()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the looks took %v", took)
	}
}

// A request that the namespace refuses as one too many, because of its other clients, is sent
// again.
func TestRefusedManagementRequestIsRepeated(t *testing.T) {
	need.RealTime(t)
	b := asAzure(t, emulator.EventHubsAsAzure{RuntimeCalls: 4})
	s := b.source(nil)
	for range 10 {
		if _, err := s.Bounds(b.now, "0"); err != nil {
			t.Fatal(err)
		}
	}
}

// Who asks while the same question waits for its turn gets that answer; the pace lets a burst
// through, then one request at a time.
func TestPace(t *testing.T) {
	p, now := newPace(), time.Now()
	for i := range paceBurst {
		if d := p.reserve(now); d > 0 {
			t.Fatalf("request %d of a burst waits %v", i, d)
		}
	}
	if d := p.reserve(now); d != paceEvery {
		t.Errorf("the next request waits %v, want %v", d, paceEvery)
	}
	p.refused(now)
	if d := p.reserve(now); d != refusedFor+paceEvery {
		t.Errorf("after a refusal a request waits %v", d)
	}
	var w waiting
	first, send := w.join("0")
	again, sendAgain := w.join("0")
	if !send || sendAgain || first != again {
		t.Error("the second caller sends a request of its own")
	}
	w.sent("0", first)
	if later, send := w.join("0"); !send || later == first {
		t.Error("a caller after the request was sent gets its answer")
	}
}

// Requests whose callers give up while they wait take no time from later ones.
func TestPaceAfterTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		var waiting sync.WaitGroup
		for range 1000 {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = p.wait(ctx)
			})
		}
		waiting.Wait()
		began := time.Now()
		if err := p.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*paceEvery {
			t.Errorf("a request after 1,000 that timed out waits %v", took)
		}
	})
}
