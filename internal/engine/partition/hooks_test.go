package partition_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

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
		"error in renewed": {Renewed: func(context.Context, sluice.Lease) error { return enginetest.ErrCut }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, leases, store := sluicetest.NewHub(enginetest.Group, 2), enginetest.NewLedger(), &sluicetest.Store{}
				hub.Append("0", sluicetest.Bodies("x", "y")...)
				var mu sync.Mutex
				seen := map[driver.ObservationKind]int{}
				_, end := enginetest.RunTransactional(t, hub, leases, store, nil, sluice.AllPartitions, sluice.Config{Owner: "a", Hooks: hooks,
					Observer: driver.ObserverFunc(func(o driver.Observation) {
						mu.Lock()
						defer mu.Unlock()
						seen[o.Kind]++
					})})
				time.Sleep(10*time.Minute + time.Second)
				if n := len(leases.Takings()); n != 2 {
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

// unclaimed is a store whose checkpoints cannot be claimed.
type unclaimed struct{ *sluicetest.Store }

func (unclaimed) Claim(context.Context, sluice.Lease, string) (sluice.Checkpoint, error) {
	return sluice.Checkpoint{}, errors.New("no")
}

// The hook Released follows Assigned: a partition that is given up before it was assigned has
// neither.
func TestReleasedFollowsAssigned(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store, want := driver.TxStore[*sluicetest.Tx](&sluicetest.Store{}), []string{"assigned", "released"}
			if !claimed {
				store, want = unclaimed{&sluicetest.Store{}}, nil
			}
			leases := enginetest.NewLedger()
			var calls []string
			c := enginetest.Must(sluice.New(sluicetest.NewHub(enginetest.Group, 1), leases, sluice.Transactional(store, enginetest.Nothing), &sluice.Config{Partitions: 1, Hooks: sluice.Hooks{
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
			if n := len(leases.Takings()); n != 1 || !slices.Equal(calls, want) {
				t.Errorf("the checkpoint is claimed: %v, %d leases were taken, the hooks called: %v, want 1, %v", claimed, n, calls, want)
			}
		})
	}
}
