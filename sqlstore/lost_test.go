package sqlstore

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
	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// lossyNetworks runs consumers over networks that lose commits in every way, and kills one of them.
// Each event must have its effect once. connect returns another store, and the proxy through which
// it reaches the database of direct; put stores an effect.
func lossyNetworks(t *testing.T, direct *Store, connect func() (*Store, *commitproxy.Proxy), put func(ctx context.Context, tx *Tx, key string) error) {
	const partitions, events, killAt = 3, 100, 20
	hub := sluicetest.NewHub(group, partitions)
	var want []string
	for p := range partitions {
		for n := range events {
			hub.Append(fmt.Sprint(p), &driver.Event{})
			want = append(want, fmt.Sprintf("%d/%d", p, n))
		}
	}
	handler := sluice.Each(func(ctx context.Context, tx *Tx, e *driver.Event) error {
		return put(ctx, tx, fmt.Sprintf("%s/%d", e.Partition, e.Sequence))
	})

	var mu sync.Mutex
	commits, suffered := 0, make(map[commitproxy.Fault]int)
	kill := make(chan struct{})
	random := need.Rand(t)
	decide := func(int) commitproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		if commits++; commits == killAt {
			close(kill)
		}
		fault := commitproxy.None
		if n := random.IntN(12); n < 4 {
			fault = commitproxy.Fault(n)
		}
		suffered[fault]++
		return fault
	}
	var proxies []*commitproxy.Proxy
	var ends []context.CancelFunc
	over := make(chan error, 2)
	for i := range cap(over) {
		s, proxy := connect()
		consumer, err := sluice.New(hub, s.Leases(), sluice.Transactional(s, handler), &sluice.Config{
			Owner: fmt.Sprint("consumer ", i), LeaseFor: 30 * time.Second, AssignEvery: 50 * time.Millisecond, MaxBatch: 5,
			RetryMin: time.Millisecond, RetryMax: 50 * time.Millisecond, Seed: uint64(i) + 1,
		})
		suite.NoError(t, "make a consumer", err)
		proxy.OnCommit(decide)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { over <- consumer.Run(ctx) }()
		proxies, ends = append(proxies, proxy), append(ends, cancel)
	}

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for done := 0; done < partitions; {
		select {
		case <-kill:
			kill = nil
			proxies[0].Cut()
			ends[0]()
		case <-tick.C:
			for _, p := range proxies {
				p.Deliver()
			}
			list, err := direct.Read(t.Context(), group)
			suite.NoError(t, "read the checkpoints", err)
			done = 0
			for _, c := range list {
				if c.Position.Sequence == events-1 {
					done++
				}
			}
		case <-deadline:
			t.Fatal("not done after 3 minutes")
		}
	}
	for _, end := range ends {
		end()
	}
	for range ends {
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("a consumer ended with %v", err)
		}
	}

	got, err := written(t.Context(), direct)
	suite.NoError(t, "read the effects", err)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		need.Verdict(t)
		t.Errorf("%d effects, %d of them distinct, of %d events", len(got), len(slices.Compact(slices.Clone(got))), len(want))
	}
	if len(suffered) != 4 || kill != nil {
		t.Errorf("faults suffered: %v, and a consumer killed: %t; want all", suffered, kill == nil)
	}
	t.Logf("faults suffered: %v", suffered)
}
