package autoscale_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// scaledBy is a target that several processes scale: it notices when two do so at the same
// time.
type scaledBy struct {
	*testing.T
	takes func() time.Duration // how long a change takes

	mu        sync.Mutex
	instances int
	active    string // who is changing it
	changes   map[string]int
}

// targetOf is the target as one process has it.
func (s *scaledBy) targetOf(process string) autoscale.Target { return &processTarget{s, process} }

type processTarget struct {
	*scaledBy
	process string
}

func (t *processTarget) Instances(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.instances, nil
}

func (t *processTarget) Scale(ctx context.Context, to int) error {
	t.mu.Lock()
	if t.active != "" {
		t.Errorf("%s scales while %s does", t.process, t.active)
	}
	t.active = t.process
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.active = ""
	}()
	select {
	case <-time.After(t.takes()):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.instances = to
	t.changes[t.process]++
	return nil
}

// TestGuard: without the lease nothing is scaled, and a request that is under way ends
// before another process can take the lease.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unrenewable{MemoryStore: autoscale.NewMemoryStore()}
		takes := time.Second
		all := &scaledBy{T: t, takes: func() time.Duration { return takes }, changes: map[string]int{}}
		holder := autoscale.NewHolder(store, "r", autoscale.Lease{Owner: "a", Duration: 15 * time.Second}, nil)
		target := holder.Guard(all.targetOf("a"))
		refused := func(when string) {
			t.Helper()
			if err := target.Scale(t.Context(), 2); !errors.Is(err, autoscale.ErrNotHeld) {
				t.Errorf("%s: %v", when, err)
			}
		}
		refused("before the lease is taken")
		_, release, err := holder.Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		takes = time.Minute // it is renewed meanwhile
		if err := target.Scale(t.Context(), 2); err != nil {
			t.Errorf("while the lease is held: %v", err)
		}
		store.failing = true
		began := time.Now()
		refused("the state is down during the request")
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("the request ended after %v, when the lease may be another's", took)
		}
		refused("the state is down")
		store.failing = false
		time.Sleep(6 * time.Second)
		takes = time.Second
		if err := target.Scale(t.Context(), 3); err != nil {
			t.Errorf("after the lease was renewed: %v", err)
		}
		release()
		refused("after the release")
	})
}

// alternating proposes one instance, and two, by turns of 40 s.
type alternating struct{}

func (alternating) Propose(s autoscale.Situation) autoscale.Proposal {
	return autoscale.Proposal{Instances: 1 + int(s.Now.Unix()/40)%2, Reason: "by turns"}
}

type constantSource struct{}

func (constantSource) Read(context.Context) (autoscale.Reading, error) {
	return autoscale.Reading{Value: 1}, nil
}

// cutStore is a store as one process has it, which is cut off from it at times.
type cutStore struct {
	autoscale.Store
	mu  sync.Mutex
	end time.Time
}

func (c *cutStore) cut(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = time.Now().Add(d)
}

func (c *cutStore) TakeLease(ctx context.Context, resource string, l autoscale.Lease) (*autoscale.Lease, error) {
	c.mu.Lock()
	cut := time.Now().Before(c.end)
	c.mu.Unlock()
	if cut {
		return nil, errOut
	}
	return c.Store.TakeLease(ctx, resource, l)
}

// TestReplicas: two processes with the same state never scale at the same time, whichever
// of them is cut off from the state and for how long, and the other takes over.
func TestReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dice{rand: need.Rand(t)}
		between := func(low, high time.Duration) time.Duration { return low + time.Duration(d.draw(int64(high-low))) }
		all := &scaledBy{T: t, instances: 1, changes: map[string]int{}, takes: func() time.Duration { return between(time.Second, 40*time.Second) }}
		store := autoscale.NewMemoryStore()
		ctx, cancel := context.WithCancel(t.Context())
		stores := map[string]*cutStore{"a": {Store: store}, "b": {Store: store}}
		var running sync.WaitGroup
		for name, own := range stores {
			holder := autoscale.NewHolder(own, "r", autoscale.Lease{Owner: name, Duration: 15 * time.Second}, nil)
			resource := &autoscale.Resource{Name: "r", Metrics: []string{"m"}, Rule: alternating{}, Limits: autoscale.Limits{Interval: time.Second, MinPoints: 1, CooldownUp: -1, CooldownDown: -1, Max: 2}}
			scaler, err := autoscale.New(resource, map[string]autoscale.Source{"m": constantSource{}}, holder.Guard(all.targetOf(name)), &autoscale.Config{Store: own})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				for ctx.Err() == nil {
					if held, release, err := holder.Hold(ctx); err == nil {
						if err := scaler.Run(held); err != nil {
							t.Error(err)
						}
						release()
					}
					time.Sleep(time.Second)
				}
			})
		}
		for range 60 {
			time.Sleep(between(10*time.Second, 90*time.Second))
			stores[[]string{"a", "b"}[int(between(0, 2))]].cut(between(5*time.Second, 60*time.Second))
		}
		cancel()
		running.Wait()
		if all.changes["a"] < 5 || all.changes["b"] < 5 {
			t.Errorf("changes by process: %v: too few to show anything", all.changes)
		}
	})
}
