package group_test

import (
	"context"
	"errors"
	"fmt"
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

func TestNeverMoreThanItsNumberAndOneASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(enginetest.Group, 8), enginetest.NewLedger(), &sluicetest.Store{}
		_, endA := enginetest.RunTransactional(t, hub, leases, store, nil, 3, sluice.Config{Owner: "a"})
		_, endB := enginetest.RunTransactional(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "b"})
		for range 20 * 60 {
			time.Sleep(time.Second)
			if n := leases.Holders(t)["a"]; n > 3 {
				t.Fatalf("a holds %d partitions", n)
			}
		}
		if n := leases.Holders(t); n["a"] != 3 || n["b"] != 5 {
			t.Errorf("held %v", n)
		}
		last := map[string]time.Time{}
		for _, take := range leases.Takings() {
			if before, ok := last[take.Owner]; ok && take.Time.Sub(before) < time.Second {
				t.Errorf("%s took two partitions within %v", take.Owner, take.Time.Sub(before))
			}
			last[take.Owner] = take.Time
		}
		endA()
		endB()
	})
}

func TestNothingMovesInADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(enginetest.Group, 8), enginetest.NewLedger(), &sluicetest.Store{}
		var ends []func()
		for _, owner := range []string{"a", "b", "c"} {
			_, end := enginetest.RunTransactional(t, hub, leases, store, nil, 3, sluice.Config{Owner: owner, RedriveEvery: time.Minute})
			ends = append(ends, end)
		}
		time.Sleep(24 * time.Hour)
		if n := len(leases.Takings()); n != 8 {
			t.Errorf("%d leases were taken for 8 partitions", n)
		}
		for _, end := range ends {
			end()
		}
	})
}

func TestTakeover(t *testing.T) {
	const partitions = 6
	for _, crash := range []bool{true, false} {
		t.Run(fmt.Sprintf("crash=%v", crash), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(enginetest.Group, partitions), enginetest.NewLedger(), &sluicetest.Store{}
				a, endA := enginetest.RunTransactional(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "a"})
				time.Sleep(20 * time.Second)
				_, endB := enginetest.RunTransactional(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "b"})
				time.Sleep(100 * time.Second)
				if n := leases.Holders(t); n["a"] != partitions {
					t.Fatalf("held %v", n)
				}
				began := time.Now()
				within := partitions * time.Second
				if crash {
					leases.CutOff("a")
					endA()
					within = 31*time.Second + (partitions-1)*time.Second
				} else if err := a.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				first := 31 * time.Second
				if !crash {
					first = time.Second
				}
				for leases.Holders(t)["b"] < partitions {
					if leases.Holders(t)["b"] == 0 && time.Since(began) > first {
						t.Fatalf("no takeover %v after", time.Since(began))
					}
					if time.Since(began) > within {
						t.Fatalf("b holds %v after %v", leases.Holders(t), time.Since(began))
					}
					time.Sleep(100 * time.Millisecond)
				}
				endA()
				endB()
			})
		})
	}
}

// A consumer that is cut off from the lease store gives up before another can
// have the partition.
func TestGivesUpBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
		lost := make(chan time.Time, 1)
		_, end := enginetest.RunTransactional(t, hub, leases, store, nil, 1, sluice.Config{Owner: "a", Hooks: sluice.Hooks{
			Released: func(_ context.Context, _ sluice.Lease, cause error) error {
				if !errors.Is(cause, sluice.ErrLeaseExpired) {
					t.Errorf("released: %v", cause)
				}
				lost <- time.Now()
				return nil
			},
		}})
		time.Sleep(45 * time.Second)
		leases.CutOff("a")
		<-lost
		for _, info := range enginetest.Must(leases.List(t.Context(), enginetest.Group)) {
			if info.Remaining < 0 {
				t.Errorf("gave up %v after the lease was free", -info.Remaining)
			}
		}
		end()
	})
}

// mute is a lease store, and a log, that don't answer at first.
type mute struct {
	*enginetest.Ledger
	*sluicetest.Hub
	list, describe sync.Once
}

func (m *mute) List(ctx context.Context, g sluice.Group) ([]driver.LeaseInfo, error) {
	m.list.Do(func() { <-ctx.Done() })
	return m.Ledger.List(ctx, g)
}

func (m *mute) Describe(ctx context.Context) (sluice.Topic, error) {
	m.describe.Do(func() { <-ctx.Done() })
	return m.Hub.Describe(ctx)
}

// A request that is never answered holds up nobody for ever.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{Ledger: enginetest.NewLedger(), Hub: sluicetest.NewHub(enginetest.Group, 1)}
		c := enginetest.Must(sluice.New(m, m, sluice.Transactional(&sluicetest.Store{}, enginetest.Nothing), &sluice.Config{Partitions: 1}))
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(t.Context()) })
		time.Sleep(time.Minute)
		if n := len(m.Takings()); n != 1 {
			t.Errorf("%d leases taken, want 1", n)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
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
		name  string
		limit time.Duration
		rows  int
	}{{"waits for the batch in progress", time.Minute, 3}, {"cancels it at the deadline", 5 * time.Second, 0}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
				hub.Append("0", sluicetest.Bodies("a", "b", "c")...)
				consumer, end := enginetest.RunTransactional(t, hub, leases, store, slow, 1, sluice.Config{Owner: "a"})
				time.Sleep(10 * time.Second)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				err := consumer.Stop(ctx)
				if (err == nil) != (c.rows > 0) {
					t.Errorf("stop: %v", err)
				}
				if took := time.Since(began); took > min(c.limit, 10*time.Second)+time.Second {
					t.Errorf("stop took %v", took)
				}
				if n := len(store.Rows("rows")); n != c.rows {
					t.Errorf("%d rows", n)
				}
				if n := leases.Holders(t)["a"]; n != 0 {
					t.Errorf("%d leases are still held", n)
				}
				end()
			})
		})
	}
	t.Run("cancelling is prompt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
			hub.Append("0", sluicetest.Bodies("a")...)
			_, end := enginetest.RunTransactional(t, hub, leases, store, slow, 1, sluice.Config{Owner: "a"})
			time.Sleep(10 * time.Second)
			began := time.Now()
			end()
			if took := time.Since(began); took > 0 {
				t.Errorf("took %v", took)
			}
			if n := len(store.Rows("rows")); n != 0 {
				t.Errorf("%d rows of a cancelled batch", n)
			}
			if n := leases.Holders(t)["a"]; n != 0 {
				t.Errorf("%d leases are still held", n)
			}
		})
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, store := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &sluicetest.Store{}
		c := enginetest.Must(sluice.New(hub, leases, sluice.Transactional(store, enginetest.Nothing), &sluice.Config{Partitions: 1}))
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.CaughtUp(soon); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing has called Run") {
			t.Errorf("before Run it has caught up: %v", err)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Errorf("run after stop: %v", err)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Error("ran twice")
		}
		runs := enginetest.Must(sluice.New(hub, leases, sluice.Transactional(store, enginetest.Nothing), nil))
		go runs.Run(t.Context())
		synctest.Wait()
		if _, _, err := runs.Redrive(t.Context()); err == nil || !strings.Contains(err.Error(), "this consumer runs") {
			t.Errorf("redrive of a consumer that runs: %v", err)
		}
		if err := runs.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
