package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "test", Topic: "events", Name: "$Default"}

// ledger is a lease store that writes down who took what when, and whose
// users can be cut off.
type ledger struct {
	*sluicetest.Leases
	mu    sync.Mutex
	taken []taking
	cut   map[string]bool // by owner
}

type taking struct {
	at               time.Time
	owner, partition string
	epoch            int64
}

var errCut = errors.New("cut off")

func newLedger() *ledger { return &ledger{Leases: &sluicetest.Leases{}, cut: map[string]bool{}} }

func (l *ledger) isCut(owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut[owner]
}

func (l *ledger) cutOff(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[owner] = true
}

// current is the store of the leases.
func (l *ledger) current() *sluicetest.Leases {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Leases
}

// lose replaces the store by an empty one.
func (l *ledger) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Leases = &sluicetest.Leases{}
}

func (l *ledger) List(ctx context.Context, g sluice.Group) ([]driver.LeaseInfo, error) {
	return l.current().List(ctx, g)
}

func (l *ledger) MarkBegan(ctx context.Context, lease sluice.Lease, incarnation string) error {
	return l.current().MarkBegan(ctx, lease, incarnation)
}

// RenewAll renews one lease after the other.
func (l *ledger) RenewAll(ctx context.Context, leases []sluice.Lease, ttl time.Duration) error {
	var errs []error
	for _, lease := range leases {
		errs = append(errs, l.Renew(ctx, lease, ttl))
	}
	return errors.Join(errs...)
}

func (l *ledger) Acquire(ctx context.Context, g sluice.Group, partition, owner string, ttl time.Duration, above int64) (sluice.Lease, error) {
	if l.isCut(owner) {
		return sluice.Lease{}, errCut
	}
	lease, err := l.current().Acquire(ctx, g, partition, owner, ttl, above)
	if err == nil {
		l.mu.Lock()
		l.taken = append(l.taken, taking{time.Now(), owner, partition, lease.Epoch})
		l.mu.Unlock()
	}
	return lease, err
}

func (l *ledger) Renew(ctx context.Context, lease sluice.Lease, ttl time.Duration) error {
	if l.isCut(lease.Owner) {
		return errCut
	}
	return l.current().Renew(ctx, lease, ttl)
}

func (l *ledger) Release(ctx context.Context, lease sluice.Lease) error {
	if l.isCut(lease.Owner) {
		return errCut
	}
	return l.current().Release(ctx, lease)
}

func (l *ledger) takings() []taking {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]taking(nil), l.taken...)
}

// holders counts the live leases by owner.
func (l *ledger) holders(t *testing.T) map[string]int {
	list, err := l.List(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, info := range list {
		if info.Live() {
			n[info.Owner]++
		}
	}
	return n
}

func nothing(context.Context, *sluicetest.Tx, sluice.Batch) error { return nil }

// consumer makes a consumer over drivers in memory and runs it. The function
// it returns stops it as cancelling its context does.
func consumer(t *testing.T, hub driver.Source, leases driver.LeaseStore, store *sluicetest.Store, h sluice.Handler[*sluicetest.Tx], n sluice.Partitions, cfg sluice.Config) (*sluice.Consumer, func()) {
	t.Helper()
	if h == nil {
		h = nothing
	}
	return running(t, hub, leases, sluice.Transactional(store, h), n, cfg)
}

// running runs a consumer with a delivery.
func running(t *testing.T, hub driver.Source, leases driver.LeaseStore, d sluice.Delivery, n sluice.Partitions, cfg sluice.Config) (*sluice.Consumer, func()) {
	t.Helper()
	cfg.Partitions = n
	c, err := sluice.New(hub, leases, d, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	var once sync.Once
	end := func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(end)
	return c, end
}

func TestNeverMoreThanItsNumberAndOneASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(group, 8), newLedger(), &sluicetest.Store{}
		_, endA := consumer(t, hub, leases, store, nil, 3, sluice.Config{Owner: "a"})
		_, endB := consumer(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "b"})
		for range 20 * 60 {
			time.Sleep(time.Second)
			if n := leases.holders(t)["a"]; n > 3 {
				t.Fatalf("a holds %d partitions", n)
			}
		}
		if n := leases.holders(t); n["a"] != 3 || n["b"] != 5 {
			t.Errorf("held %v", n)
		}
		last := map[string]time.Time{}
		for _, take := range leases.takings() {
			if before, ok := last[take.owner]; ok && take.at.Sub(before) < time.Second {
				t.Errorf("%s took two partitions within %v", take.owner, take.at.Sub(before))
			}
			last[take.owner] = take.at
		}
		endA()
		endB()
	})
}

func TestNothingMovesInADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(group, 8), newLedger(), &sluicetest.Store{}
		var ends []func()
		for _, owner := range []string{"a", "b", "c"} {
			_, end := consumer(t, hub, leases, store, nil, 3, sluice.Config{Owner: owner, RedriveEvery: time.Minute})
			ends = append(ends, end)
		}
		time.Sleep(24 * time.Hour)
		if n := len(leases.takings()); n != 8 {
			t.Errorf("%d leases were taken for 8 partitions", n)
		}
		for _, end := range ends {
			end()
		}
	})
}

func TestHooksHoldUpNoRenewal(t *testing.T) {
	block := func(ctx context.Context) error { <-ctx.Done(); return nil }
	hang := sluice.Hooks{
		Assigned: func(ctx context.Context, _ sluice.Lease, _ sluice.Checkpoint) error { return block(ctx) },
	}
	for name, hooks := range map[string]sluice.Hooks{
		"assigned hangs":   hang,
		"renewed hangs":    {Renewed: func(ctx context.Context, _ sluice.Lease) error { return block(ctx) }},
		"batch hangs":      {Batch: func(ctx context.Context, _ sluice.Batch) error { return block(ctx) }},
		"renewed panics":   {Renewed: func(context.Context, sluice.Lease) error { panic("hook") }},
		"batch panics":     {Batch: func(context.Context, sluice.Batch) error { panic("hook") }},
		"assigned panics":  {Assigned: func(context.Context, sluice.Lease, sluice.Checkpoint) error { panic("hook") }},
		"error in renewed": {Renewed: func(context.Context, sluice.Lease) error { return errCut }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(group, 2), newLedger(), &sluicetest.Store{}
				hub.Append("0", sluicetest.Bodies("x", "y")...)
				var mu sync.Mutex
				seen := map[driver.ObservationKind]int{}
				_, end := consumer(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "a", Hooks: hooks,
					Observer: driver.ObserverFunc(func(o driver.Observation) {
						mu.Lock()
						defer mu.Unlock()
						seen[o.Kind]++
					})})
				time.Sleep(10*time.Minute + time.Second)
				if n := len(leases.takings()); n != 2 {
					t.Errorf("%d leases were taken for 2 partitions", n)
				}
				end()
				mu.Lock()
				defer mu.Unlock()
				if n := seen[driver.KindRenewed]; n < 2*59 {
					t.Errorf("%d renewals in ten minutes", n)
				}
				if hooks.Assigned != nil && name != "assigned hangs" && seen[driver.KindHookFailed] == 0 || name == "error in renewed" && seen[driver.KindHookFailed] == 0 {
					t.Error("the hook's failure was not told")
				}
			})
		})
	}
}

func TestTakeover(t *testing.T) {
	const partitions = 6
	for _, crash := range []bool{true, false} {
		t.Run(fmt.Sprintf("crash=%v", crash), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(group, partitions), newLedger(), &sluicetest.Store{}
				a, endA := consumer(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "a"})
				time.Sleep(20 * time.Second)
				_, endB := consumer(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "b"})
				time.Sleep(100 * time.Second)
				if n := leases.holders(t); n["a"] != partitions {
					t.Fatalf("held %v", n)
				}
				began := time.Now()
				within := partitions * time.Second
				if crash {
					leases.cutOff("a")
					endA()
					within = 31*time.Second + (partitions-1)*time.Second
				} else if err := a.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				first := 31 * time.Second
				if !crash {
					first = time.Second
				}
				for leases.holders(t)["b"] < partitions {
					if leases.holders(t)["b"] == 0 && time.Since(began) > first {
						t.Fatalf("no takeover %v after", time.Since(began))
					}
					if time.Since(began) > within {
						t.Fatalf("b holds %v after %v", leases.holders(t), time.Since(began))
					}
					time.Sleep(100 * time.Millisecond)
				}
				endA()
				endB()
			})
		})
	}
}

// unclaimed is a store whose checkpoints cannot be claimed.
type unclaimed struct{ *sluicetest.Store }

func (unclaimed) Claim(context.Context, sluice.Lease, string) (sluice.Checkpoint, error) {
	return sluice.Checkpoint{}, errors.New("no")
}

// The hook Released follows Assigned: a partition that is given up before it was assigned has neither.
func TestReleasedFollowsAssigned(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store, want := driver.TxStore[*sluicetest.Tx](&sluicetest.Store{}), []string{"assigned", "released"}
			if !claimed {
				store, want = unclaimed{&sluicetest.Store{}}, nil
			}
			leases := newLedger()
			var calls []string
			c := must(sluice.New(sluicetest.NewHub(group, 1), leases, sluice.Transactional(store, nothing), &sluice.Config{Partitions: 1, Hooks: sluice.Hooks{
				Assigned: func(context.Context, sluice.Lease, sluice.Checkpoint) error {
					calls = append(calls, "assigned")
					return nil
				},
				Released: func(context.Context, sluice.Lease, error) error { calls = append(calls, "released"); return nil },
			}}))
			var running sync.WaitGroup
			running.Go(func() { _ = c.Run(t.Context()) })
			time.Sleep(10 * time.Second)
			if err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			running.Wait()
			if n := len(leases.takings()); n != 1 || !slices.Equal(calls, want) {
				t.Errorf("the checkpoint is claimed: %v, %d leases were taken, the hooks called: %v, want 1, %v", claimed, n, calls, want)
			}
		})
	}
}

// A consumer that is cut off from the lease store gives up before another can
// have the partition.
func TestGivesUpBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
		lost := make(chan time.Time, 1)
		_, end := consumer(t, hub, leases, store, nil, 1, sluice.Config{Owner: "a", Hooks: sluice.Hooks{
			Released: func(_ context.Context, _ sluice.Lease, cause error) error {
				if !errors.Is(cause, sluice.ErrLeaseExpired) {
					t.Errorf("released: %v", cause)
				}
				lost <- time.Now()
				return nil
			},
		}})
		time.Sleep(45 * time.Second)
		leases.cutOff("a")
		<-lost
		for _, info := range must(leases.List(t.Context(), group)) {
			if info.Remaining < 0 {
				t.Errorf("gave up %v after the lease was free", -info.Remaining)
			}
		}
		end()
	})
}

// mute is a lease store, and a log, that don't answer at first.
type mute struct {
	*ledger
	*sluicetest.Hub
	list, describe sync.Once
}

func (m *mute) List(ctx context.Context, g sluice.Group) ([]driver.LeaseInfo, error) {
	m.list.Do(func() { <-ctx.Done() })
	return m.ledger.List(ctx, g)
}

func (m *mute) Describe(ctx context.Context) (sluice.Topic, error) {
	m.describe.Do(func() { <-ctx.Done() })
	return m.Hub.Describe(ctx)
}

// A request that is never answered holds up nobody for ever.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{ledger: newLedger(), Hub: sluicetest.NewHub(group, 1)}
		c := must(sluice.New(m, m, sluice.Transactional(&sluicetest.Store{}, nothing), &sluice.Config{Partitions: 1}))
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(t.Context()) })
		time.Sleep(time.Minute)
		if n := len(m.takings()); n != 1 {
			t.Errorf("%d leases taken, want 1", n)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestStop(t *testing.T) {
	slow := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		for _, e := range b.Events {
			if err := tx.Insert("rows", e.Sequence); err != nil {
				return err
			}
		}
		select {
		case <-time.After(20 * time.Second):
			return nil
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), sluice.ErrStopped) {
				t.Errorf("cancelled because of %v", context.Cause(ctx))
			}
			return ctx.Err()
		}
	}
	for _, c := range []struct {
		name   string
		within time.Duration
		rows   int
	}{{"waits for the batch in progress", time.Minute, 3}, {"cancels it at the deadline", 5 * time.Second, 0}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
				hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
				consumer, end := consumer(t, hub, leases, store, slow, 1, sluice.Config{Owner: "a"})
				time.Sleep(10 * time.Second)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				err := consumer.Stop(ctx)
				if (err == nil) != (c.rows > 0) {
					t.Errorf("stop: %v", err)
				}
				if took := time.Since(began); took > min(c.within, 10*time.Second)+time.Second {
					t.Errorf("stop took %v", took)
				}
				if n := len(store.Rows("rows")); n != c.rows {
					t.Errorf("%d rows", n)
				}
				if n := leases.holders(t)["a"]; n != 0 {
					t.Errorf("%d leases are still held", n)
				}
				end()
			})
		})
	}
	t.Run("cancelling is prompt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
			hub.Append("0", sluicetest.Bodies("a")...)
			_, end := consumer(t, hub, leases, store, slow, 1, sluice.Config{Owner: "a"})
			time.Sleep(10 * time.Second)
			began := time.Now()
			end()
			if took := time.Since(began); took > 0 {
				t.Errorf("took %v", took)
			}
			if n := len(store.Rows("rows")); n != 0 {
				t.Errorf("%d rows of a cancelled batch", n)
			}
			if n := leases.holders(t)["a"]; n != 0 {
				t.Errorf("%d leases are still held", n)
			}
		})
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
		c := must(sluice.New(hub, leases, sluice.Transactional(store, nothing), &sluice.Config{Partitions: 1}))
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Errorf("run after stop: %v", err)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("ran twice")
		}
	})
}

// limited is a lease store that grants leases of some lengths only.
type limited struct{ *ledger }

func (limited) LeaseLimits() (shortest, longest time.Duration) {
	return 15 * time.Second, time.Minute
}

// What cannot work is refused at once, in a line that says what to change.
func TestNewRefuses(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
	delivery := sluice.Transactional(store, nothing)
	sink := newWarehouse(t)
	type record = func(context.Context, *sluice.Event) ([]*sluice.Event, error)
	for _, test := range []struct {
		source   driver.Source
		leases   driver.LeaseStore
		delivery sluice.Delivery
		cfg      sluice.Config
		want     string // in the error; empty: it is accepted
	}{
		{hub, limited{leases}, delivery, sluice.Config{}, ""},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: time.Minute}, ""},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: 2 * time.Minute}, "lease of 2m0s: the lease store grants leases of 15s to 1m0s"},
		{hub, limited{leases}, delivery, sluice.Config{LeaseFor: 10 * time.Second}, "lease of 10s"},
		{hub, leases, delivery, sluice.Config{LeaseFor: 30}, "is the unit missing"},
		{nil, leases, delivery, sluice.Config{}, "nil"},
		{hub, nil, delivery, sluice.Config{}, "nil"},
		{hub, leases, nil, sluice.Config{}, "nil"},
		{hub, leases, sluice.Transactional(store, nil), sluice.Config{}, "nil"},
		{hub, leases, sluice.Transactional[*sluicetest.Tx](nil, nothing), sluice.Config{}, "nil"},
		{hub, leases, sluice.AtLeastOnce(nil, sluice.EventAsRecord, sink, nil), sluice.Config{}, "nil"},
		{hub, leases, sluice.AtLeastOnce(store, record(nil), sink, nil), sluice.Config{}, "nil"},
		{hub, leases, sluice.AtLeastOnce[*sluice.Event](store, sluice.EventAsRecord, nil, nil), sluice.Config{}, "nil"},
		{hub, leases, sluice.AtLeastOnce(store, sluice.EventAsRecord, sluice.Keyed[*sluice.Event](nil, func(*sluice.Event) string { return "" }), nil), sluice.Config{}, "nil"},
		{hub, leases, delivery, sluice.Config{Owner: "worker\x00"}, `owner "worker\x00"`},
		{hub, leases, delivery, sluice.Config{Owner: strings.Repeat("x", 1001)}, "1000 bytes"},
		{hub, leases, delivery, sluice.Config{Start: sluice.Ago(0)}, "start"},
		{hub, leases, delivery, sluice.Config{Start: sluice.At(time.Time{})}, "start"},
		{hub, leases, delivery, sluice.Config{Start: sluice.FromSequence(-1)}, "start"},
		{hub, leases, delivery, sluice.Config{Start: sluice.FromOffset("")}, "start"},
		{hub, leases, delivery, sluice.Config{Start: sluice.Start{Kind: 99}}, "start"},
	} {
		_, err := sluice.New(test.source, test.leases, test.delivery, &test.cfg)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: got %v, want %q", test.cfg, err, test.want)
		}
	}
}

func TestConfig(t *testing.T) {
	hub, leases, store := sluicetest.NewHub(group, 1), newLedger(), &sluicetest.Store{}
	for _, bad := range []struct {
		n   sluice.Partitions
		cfg sluice.Config
	}{
		{-2, sluice.Config{}}, {-3, sluice.Config{}},
		{1, sluice.Config{LeaseFor: 20 * time.Second, RenewEvery: 10 * time.Second}},
		{1, sluice.Config{MaxBatch: -1}}, {1, sluice.Config{Attempts: -1}},
		{1, sluice.Config{RetryMin: time.Second, RetryMax: time.Millisecond}},
	} {
		bad.cfg.Partitions = bad.n
		if _, err := sluice.New(hub, leases, sluice.Transactional(store, nothing), &bad.cfg); err == nil {
			t.Errorf("accepted %d partitions, %+v", bad.n, bad.cfg)
		}
	}
}

// An operator sets the checkpoint of a partition whose owner is idle. The owner finds that out
// without an event.
func TestCheckpointSetWhileIdle(t *testing.T) {
	for name, run := range map[string]func(s *scene, seen *atomic.Int64) (end func()){
		"transactional": func(s *scene, seen *atomic.Int64) func() {
			_, end := s.consume("a", func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
				seen.Add(int64(len(b.Events)))
				return nil
			}, sluice.Config{})
			return end
		},
		"at least once": func(s *scene, seen *atomic.Int64) func() {
			w := must(sluice.Workers(1, func(context.Context, *sluice.Event) error { seen.Add(1); return nil }))
			_, stop := s.pour(w, nil, sluice.Config{})
			return func() { must(0, stop()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var seen atomic.Int64
				s.send("0", "a", "b", "c")
				defer run(s, &seen)()
				time.Sleep(5 * time.Minute)
				topic := must(s.hub.Describe(s.t.Context()))
				must(s.store.Reset(s.t.Context(), group, "0", topic.Incarnation, driver.Origin, "set"))
				time.Sleep(time.Minute)
				if n := seen.Load(); n != 6 {
					s.t.Errorf("%d events were delivered, want 3, and the same 3 after the checkpoint was set", n)
				}
				if p := s.position("0"); p != 2 {
					s.t.Errorf("the checkpoint is at %d, want 2", p)
				}
			})
		})
	}
}
