package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// unanswered is a lease store where requests about some leases get no answer, as with
// a row that another session has locked.
type unanswered struct {
	*enginetest.Ledger
	acquire, renew string // names of leases
}

func (u *unanswered) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	if partition == u.acquire {
		<-ctx.Done()
		return sluice.Lease{}, ctx.Err()
	}
	return u.Ledger.Acquire(ctx, g, partition, owner, ttl, above)
}

func (u *unanswered) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	if lease.Partition == u.renew {
		<-ctx.Done()
		return ctx.Err()
	}
	return u.Ledger.Renew(ctx, lease, ttl)
}

// A lease that does not answer delays no other partition by more than a moment.
func TestOneLeaseDoesNotAnswer(t *testing.T) {
	for _, test := range []struct {
		name           string
		acquire, renew string
		n              sluice.Partitions
		want           int
		limit          time.Duration
	}{
		{"a partition", "3", "", sluice.AllPartitions, 14, 20 * time.Second},
		{"a partition, balanced", "3", "", sluice.Balanced, 14, 20 * time.Second},
		{"a membership", "~0", "", sluice.Balanced, 15, 40 * time.Second},
		{"a renewal of a membership", "", "~0", sluice.Balanced, 15, 40 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				leases := &unanswered{enginetest.NewLedger(), test.acquire, test.renew}
				var mu sync.Mutex
				failures := 0
				cfg := sluice.Config{Observer: driver.ObserverFunc(func(o driver.Observation) {
					mu.Lock()
					defer mu.Unlock()
					if o.Kind == driver.KindFailed {
						failures++
					}
				})}
				_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 15), leases, &sluicetest.Store{}, nil, test.n, cfg)
				time.Sleep(10 * time.Minute)
				end()
				after := leases.Acquired(began)
				if len(after) != test.want {
					t.Fatalf("acquired %v", after)
				}
				for p, d := range after {
					if d > test.limit {
						t.Errorf("partition %s was acquired after %v", p, d)
					}
				}
				// Every 20 s at most: a third of the lease, and a rest.
				mu.Lock()
				defer mu.Unlock()
				if failures == 0 || failures > 50 {
					t.Errorf("%d failures were reported", failures)
				}
			})
		})
	}
}

// While the answer about one partition is awaited, it counts.
func TestNeverMoreThanItsNumberWithSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &slowLeases{enginetest.NewLedger(), 5 * time.Second}
		_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 8), leases, &sluicetest.Store{}, nil, 3, sluice.Config{Owner: "a"})
		for range 60 {
			time.Sleep(time.Second)
			if n := leases.Holders(t)["a"]; n > 3 {
				t.Fatalf("a holds %d partitions", n)
			}
		}
		if n := leases.Holders(t)["a"]; n != 3 {
			t.Errorf("a holds %d partitions", n)
		}
		end()
	})
}

// slowLeases is a lease store that takes its time to acquire.
type slowLeases struct {
	*enginetest.Ledger
	delay time.Duration
}

func (s *slowLeases) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	time.Sleep(s.delay)
	return s.Ledger.Acquire(ctx, g, partition, owner, ttl, above)
}

// A burst acquires a whole topic at once, and never more than the consumer's number.
func TestBursts(t *testing.T) {
	for _, c := range []struct {
		n           sluice.Partitions
		burst, want int
		limit       time.Duration
	}{
		{sluice.AllPartitions, 32, 32, 0},
		{sluice.AllPartitions, 10, 32, 3 * time.Second},
		{sluice.AllPartitions, 0, 32, 31 * time.Second},
		{sluice.Balanced, 32, 32, 2 * time.Second},
		{5, 32, 5, 0},
	} {
		t.Run(fmt.Sprintf("%d, bursts of %d", c.n, c.burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				leases := enginetest.NewLedger()
				_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 32), leases, &sluicetest.Store{}, nil, c.n, sluice.Config{AssignBurst: c.burst})
				time.Sleep(time.Minute)
				end()
				acquired := leases.Acquired(began)
				var last time.Duration
				for _, after := range acquired {
					last = max(last, after)
				}
				if len(acquired) != c.want || last > c.limit {
					t.Errorf("%d partitions within %v, want %d within %v", len(acquired), last, c.want, c.limit)
				}
			})
		})
	}
}

// Partitions of a burst whose answers are awaited count too.
func TestBurstsWithSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := &slowLeases{enginetest.NewLedger(), 700 * time.Millisecond}
		_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 8), leases, &sluicetest.Store{}, nil, 3, sluice.Config{Owner: "a", AssignBurst: 8})
		time.Sleep(time.Minute)
		if n := leases.Holders(t)["a"]; n != 3 || len(leases.Takings()) != 3 {
			t.Errorf("a holds %d partitions after %d acquisitions, want 3", n, len(leases.Takings()))
		}
		end()
	})
}

// shared collects the reports that an owner name is used twice.
type shared struct {
	mu      sync.Mutex
	reports []error
}

func (s *shared) Observe(o driver.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(o.Err, sluice.ErrSharedOwner) {
		s.reports = append(s.reports, o.Err)
	}
}

func (s *shared) list() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports)
}

func TestTwoProcessesOfOneOwner(t *testing.T) {
	for _, n := range []sluice.Partitions{sluice.AllPartitions, 2, sluice.Balanced} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(enginetest.Group, 3), enginetest.NewLedger(), &sluicetest.Store{}
				a, b := &shared{}, &shared{}
				_, endA := enginetest.RunTransactional(t, hub, leases, store, nil, n, sluice.Config{Owner: "worker", Observer: a})
				time.Sleep(20 * time.Second)
				_, endB := enginetest.RunTransactional(t, hub, leases, store, nil, n, sluice.Config{Owner: "worker", Observer: b})
				time.Sleep(10 * time.Minute)
				endA()
				endB()
				for name, s := range map[string]*shared{"a": a, "b": b} {
					if got := s.list(); len(got) < 5 || len(got) > 11 || !strings.Contains(got[0].Error(), `"worker"`) {
						t.Errorf("%s reported %d times in 10 minutes: %v", name, len(got), got)
					}
				}
			})
		})
	}
}

// A process that returns under its name takes over what it held before, and nobody
// reports anything.
func TestRestartUnderTheSameOwner(t *testing.T) {
	for _, n := range []sluice.Partitions{sluice.AllPartitions, sluice.Balanced} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprint(n, killed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hub, leases, store, s := sluicetest.NewHub(enginetest.Group, 4), enginetest.NewLedger(), &sluicetest.Store{}, &shared{}
					for range 5 {
						_, end := enginetest.RunTransactional(t, hub, leases, store, nil, n, sluice.Config{Owner: "worker", Observer: s})
						time.Sleep(25 * time.Second)
						if killed {
							leases.CutOff("worker")
						}
						end()
						leases.Reconnect("worker")
						if killed {
							time.Sleep(3 * time.Second)
						}
					}
					if got := s.list(); got != nil {
						t.Errorf("reported %v", got)
					}
				})
			})
		}
	}
}

// delayed is a lease store where each third acquisition has no answer, and takes effect
// later.
type delayed struct {
	*enginetest.Ledger
	delay time.Duration
	late  sync.WaitGroup // for acquisitions that take effect later
	mu    sync.Mutex
	calls int
}

func (d *delayed) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	d.mu.Lock()
	d.calls++
	lost := d.calls%3 == 0
	d.mu.Unlock()
	if !lost {
		return d.Ledger.Acquire(ctx, g, partition, owner, ttl, above)
	}
	d.late.Go(func() {
		time.Sleep(d.delay)
		_, _ = d.Ledger.Acquire(context.Background(), g, partition, owner, ttl, above)
	})
	return sluice.Lease{}, enginetest.ErrCut
}

// An acquisition of its own that takes effect late is no other process.
func TestOwnLateAcquisitionIsNoOtherProcess(t *testing.T) {
	for _, n := range []sluice.Partitions{sluice.AllPartitions, sluice.Balanced} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, leases := &shared{}, &delayed{Ledger: enginetest.NewLedger(), delay: 20 * time.Second}
				_, end := enginetest.RunTransactional(t, sluicetest.NewHub(enginetest.Group, 6), leases, &sluicetest.Store{}, nil, n, sluice.Config{Owner: "worker", Observer: s})
				time.Sleep(10 * time.Minute)
				end()
				leases.late.Wait()
				if got := s.list(); got != nil {
					t.Errorf("reported %v", got)
				}
			})
		})
	}
}

// shrinking is a topic that loses its last partition, on some descriptions or for good.
type shrinking struct {
	*sluicetest.Hub
	mu   sync.Mutex
	gone func(described int) bool
	n    int
}

func (s *shrinking) Describe(ctx context.Context) (sluice.Topic, error) {
	topic, err := s.Hub.Describe(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if err == nil && s.gone(s.n) {
		topic.Partitions = topic.Partitions[:len(topic.Partitions)-1]
	}
	return topic, err
}

func TestPartitionThatIsGoneIsReleased(t *testing.T) {
	for _, test := range []struct {
		name string
		gone func(described int) bool
		held int
	}{
		{"for good", func(n int) bool { return n > 20 }, 3},
		{"in one description", func(n int) bool { return n == 20 }, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := enginetest.NewLedger()
				var mu sync.Mutex
				var lost []string
				cfg := sluice.Config{Owner: "a", Observer: driver.ObserverFunc(func(o driver.Observation) {
					mu.Lock()
					defer mu.Unlock()
					if o.Kind == driver.KindLost {
						lost = append(lost, fmt.Sprint(o.Partition, ": ", o.Err))
					}
				})}
				_, end := enginetest.RunTransactional(t, &shrinking{Hub: sluicetest.NewHub(enginetest.Group, 4), gone: test.gone}, leases, &sluicetest.Store{}, nil, sluice.AllPartitions, cfg)
				time.Sleep(30 * time.Minute)
				if n := leases.Holders(t)["a"]; n != test.held {
					t.Errorf("%d partitions are held, want %d", n, test.held)
				}
				end()
				mu.Lock()
				defer mu.Unlock()
				if len(lost) != 4-test.held || len(lost) == 1 && !strings.HasPrefix(lost[0], "3: partition 3 is no longer in topic events") {
					t.Errorf("lost %v", lost)
				}
			})
		})
	}
}
