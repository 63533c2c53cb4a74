// Package batchtest runs the delivery Batches over a store and its leases.
package batchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// Stores are what a consumer works over, with nothing stored.
type Stores struct {
	Store interface {
		driver.AtLeastOnceStore
		driver.DeadLetterStore
	}
	Leases   driver.LeaseStore
	LeaseFor time.Duration // the shortest that they grant; 0: any
}

var group = sluice.Group{Namespace: "ns", Topic: "batches", Name: "$Default"}

// handled notes which events were handled.
type handled struct {
	mu   sync.Mutex
	done map[string]int // by body
}

// Run runs consumers over stores, one after the other: what is sent is handled or a dead letter, a
// dead letter that is redriven is handled, and an event that may have ended the process is tried
// alone, with a record of the attempt.
func Run(t *testing.T, s Stores) {
	const each = 200
	hub, h := sluicetest.NewHub(group, 2), &handled{done: map[string]int{}}
	for i := range each {
		body := fmt.Sprint("event ", i)
		if i%50 == 7 {
			body = fmt.Sprint("reject ", i)
		}
		hub.Append(fmt.Sprint(i%2), sluicetest.Bodies(body)...)
	}
	s.consume(t, hub, h.handle, nil, func() bool { return s.reached(t, "0", 99) && s.reached(t, "1", 99) })
	h.want(t, each-4)
	dead, err := s.Store.List(t.Context(), group, driver.DeadLetterFilter{})
	if err != nil || len(dead) != 4 {
		t.Fatalf("dead letters %+v, %v; want 4", dead, err)
	}
	if _, err := s.Store.Redrive(t.Context(), group, driver.DeadLetterFilter{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	s.consume(t, hub, h.handle, nil, func() bool {
		n, err := s.Store.Count(t.Context(), group, driver.DeadLetterFilter{})
		return err == nil && len(n) == 0
	})
	h.want(t, each)

	s.uncleanEnds(t, hub, "0")
	hub.Append("0", sluicetest.Bodies("suspect")...)
	var records []driver.AttemptRecord
	s.consume(t, hub, func(_ context.Context, b sluice.Batch) error {
		records = append(records, s.checkpoint(t, b.Partition).Attempt)
		return nil
	}, &sluice.BatchesConfig{CheckpointEvery: time.Hour}, func() bool { return s.reached(t, "0", 100) })
	want := []driver.AttemptRecord{{Sequence: 100, Unreturned: 1}}
	if !slices.Equal(records, want) {
		t.Errorf("recorded while a suspected event was handled: %+v, want %+v", records, want)
	}
	if p := s.checkpoint(t, "0"); p.Claims != 0 || p.Attempt != (driver.AttemptRecord{}) {
		t.Errorf("after a clean stop: %+v", p)
	}
}

func (h *handled) handle(_ context.Context, b sluice.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for i, e := range b.Events {
		if string(e.Body[:6]) == "reject" && !b.Redriven {
			errs = append(errs, &driver.EventError{Index: i, Err: driver.Reject(errors.New("rejected"))})
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, e := range b.Events {
		h.done[string(e.Body)]++
	}
	return nil
}

// want checks that so many events were handled, each once: nothing has failed meanwhile.
func (h *handled) want(t *testing.T, n int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.done) != n {
		t.Errorf("%d events were handled, want %d", len(h.done), n)
	}
	for body, times := range h.done {
		if times != 1 {
			t.Errorf("%s was handled %d times", body, times)
		}
	}
}

// consume runs a consumer until a condition holds, and stops it.
func (s Stores) consume(t *testing.T, hub *sluicetest.Hub, h func(context.Context, sluice.Batch) error, cfg *sluice.BatchesConfig, until func() bool) {
	t.Helper()
	c, err := sluice.New(hub, s.Leases, sluice.Batches(s.Store, h, cfg), &sluice.Config{
		LeaseFor: s.LeaseFor, AssignEvery: 10 * time.Millisecond, RedriveEvery: 50 * time.Millisecond, MaxBatch: 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- c.Run(context.Background()) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	reached := false
	for end := time.Now().Add(3 * time.Minute); !reached && time.Now().Before(end); <-tick.C {
		reached = until()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(c.Stop(ctx), <-over); err != nil || !reached {
		t.Fatalf("run: %v; it has reached what was wanted: %v", err, reached)
	}
}

func (s Stores) checkpoint(t *testing.T, partition string) driver.Checkpoint {
	list, err := s.Store.Read(context.Background(), group)
	if err != nil {
		t.Error(err)
	}
	for _, p := range list {
		if p.Partition == partition {
			return p
		}
	}
	return driver.Checkpoint{Position: driver.Unset}
}

func (s Stores) reached(t *testing.T, partition string, sequence int64) bool {
	return s.checkpoint(t, partition).Position.Sequence == sequence
}

// uncleanEnds claims a partition as processes do that end without a trace.
func (s Stores) uncleanEnds(t *testing.T, hub *sluicetest.Hub, partition string) {
	topic, err := hub.Describe(t.Context())
	for i := range 4 {
		var lease driver.Lease
		if err == nil {
			lease, err = s.Leases.Acquire(t.Context(), group, partition, fmt.Sprint("ended", i), max(s.LeaseFor, time.Minute), 0)
		}
		if err == nil {
			_, err = s.Store.Claim(t.Context(), lease, topic.Incarnation)
		}
		if err == nil {
			err = s.Leases.Release(t.Context(), lease)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
