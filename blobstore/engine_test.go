package blobstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// collector is a sink that refuses some texts.
type collector struct {
	mu    sync.Mutex
	taken []string
}

func (c *collector) Submit(_ context.Context, text string, done func(driver.WriteResult)) {
	if text == "poison" {
		done(driver.WriteResult{Err: driver.Reject(fmt.Errorf("no %s", text))})
		return
	}
	c.mu.Lock()
	c.taken = append(c.taken, text)
	c.mu.Unlock()
	done(driver.WriteResult{})
}

func (c *collector) has(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.taken) >= n
}

// One consumer after the other, each with all that it needs in one container:
// the second goes on where the first has stopped.
func TestConsumers(t *testing.T) {
	p := newPlace(t)
	hub := sluicetest.NewHub(group, 2)
	var want []string
	add := func(from, to int) {
		for i := from; i < to; i++ {
			text := fmt.Sprint("event ", i)
			want = append(want, text)
			hub.Append(fmt.Sprint(i%2), sluicetest.Bodies(text)...)
		}
	}
	sink := &collector{}
	run := func(until func() bool) {
		t.Helper()
		store := p.open(t)
		records := func(_ context.Context, e *driver.Event) ([]string, error) { return []string{string(e.Body)}, nil }
		c, err := sluice.New(hub, store.Leases(), sluice.AtLeastOnce(store, records, sink, nil), &sluice.Config{
			LeaseFor: blobstore.MinLease, AssignEvery: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- c.Run(context.Background()) }()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(2 * time.Minute); !until() && time.Now().Before(end); <-tick.C {
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-over; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	add(0, 500)
	hub.Append("1", sluicetest.Bodies("poison")...)
	run(func() bool { return sink.has(500) })
	add(500, 800)
	store := p.open(t)
	run(func() bool { return sink.has(800) })
	slices.Sort(want)
	slices.Sort(sink.taken)
	if !slices.Equal(sink.taken, want) {
		t.Errorf("%d events were written, want each of %d once", len(sink.taken), len(want))
	}
	list, err := store.Read(t.Context(), group)
	if err != nil || len(list) != 2 || list[0].Position.Sequence != 399 || list[1].Position.Sequence != 400 || list[1].Claims != 0 {
		t.Errorf("checkpoints are %+v, %v", list, err)
	}
	if dead := listed(t, store); len(dead) != 1 || string(dead[0].Error) != "no poison" {
		t.Errorf("dead letters are %+v", dead)
	}
	leases, err := store.Leases().List(t.Context(), group)
	if err != nil || len(leases) != 2 || leases[0].Live() || leases[1].Live() {
		t.Errorf("leases are %+v, %v", leases, err)
	}
}
