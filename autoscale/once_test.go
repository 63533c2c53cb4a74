package autoscale_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/autoscale"
)

// timer makes rounds as processes of their own that share a store and a target.
type timer struct {
	*testing.T
	resource *autoscale.Resource
	backlog  *gauge
	target   *fleet
	store    autoscale.Store
}

func newTimer(t *testing.T) *timer {
	return &timer{t, resource(autoscale.Limits{}), &gauge{}, &fleet{instances: 1}, autoscale.NewMemoryStore()}
}

func (w *timer) try(wait time.Duration) (*autoscale.Round, error) {
	w.Helper()
	a, err := autoscale.New(w.resource, map[string]autoscale.Source{"backlog": w.backlog}, w.target, &autoscale.Config{Store: w.store})
	if err != nil {
		w.Fatal(err)
	}
	return a.Once(w.Context(), wait)
}

// round makes a round and returns the kinds of its records. A minute later the next one
// is due.
func (w *timer) round() string {
	w.Helper()
	began := time.Now()
	r, err := w.try(5 * time.Minute)
	if err != nil {
		w.Fatal(err)
	}
	time.Sleep(time.Until(began.Add(time.Minute)))
	return kinds(r)
}

func kinds(r *autoscale.Round) string {
	var list []string
	for _, record := range r.Records {
		list = append(list, string(record.Kind))
	}
	return strings.Join(list, " ")
}

// TestOnce: rounds of a timer decide as a process that runs does: from the fifth value on,
// then a cooldown of ten minutes from the end of the action.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimer(t)
		w.target.takes = 3 * time.Second
		w.backlog.set(900)
		for i := 1; i <= 27; i++ {
			want := "hold"
			if i == 5 || i == 16 || i == 27 { // ten minutes and 57 seconds after the end
				want = "up succeeded"
			}
			if got := w.round(); got != want {
				t.Errorf("round %d: %s, want %s", i, got, want)
			}
		}
		w.backlog.set(0)
		for i := 1; i <= 11; i++ {
			want := "hold"
			if i == 11 {
				want = "down succeeded"
			}
			if got := w.round(); got != want {
				t.Errorf("round %d after the backlog: %s, want %s", i, got, want)
			}
		}
	})
}

// TestOnceContinues: an action that takes longer than a round is continued by the next
// one, however the round ended, and carried out once.
func TestOnceContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimer(t)
		w.backlog.set(900)
		for range 4 {
			w.round()
		}
		w.target.takes = time.Hour
		began := time.Now()
		r, err := w.try(30 * time.Second)
		if err != nil || kinds(r) != "up" || r.Pending == nil || r.Pending.Number != 1 || time.Since(began) != 30*time.Second {
			t.Fatalf("after %v: %+v, %v", time.Since(began), r, err)
		}
		r, err = w.try(30 * time.Second)
		if err != nil || kinds(r) != "hold" || r.Pending == nil || !strings.Contains(r.Records[0].Reason, "is in progress") {
			t.Fatalf("the action still takes longer: %+v, %v", r, err)
		}
		w.target.takes = time.Second
		if got := w.round(); got != "succeeded hold" {
			t.Errorf("the round that completes the action: %s", got)
		}
		if done := w.target.scalings(); len(done) != 1 || done[0].number != 1 {
			t.Errorf("scaled %+v", done)
		}
	})
}

// TestOnceFailing: an action whose attempts fail is an error, also if the round ends before
// it is abandoned. The next round continues it.
func TestOnceFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimer(t)
		w.backlog.set(900)
		for range 4 {
			w.round()
		}
		w.target.fail = func() error { return errOut }
		for range 2 {
			r, err := w.try(5 * time.Second) // attempts after 0 s, 1 s and 3 s
			if !errors.Is(err, errOut) || !strings.Contains(err.Error(), "action 1, from 1 to 2 instances, is not completed: 3 attempts failed: ") || r.Pending == nil {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		w.target.fail = nil
		time.Sleep(time.Second)
		if got := w.round(); got != "succeeded hold" {
			t.Errorf("the target works again: %s", got)
		}
	})
}

// crashing is a store that fails once, before or after a call has had its effect.
type crashing struct {
	*autoscale.MemoryStore
	call    string
	applies bool
}

func (s *crashing) crash(what string, fn func() error) error {
	now := s.call == what
	if now {
		s.call = ""
	}
	if now && !s.applies {
		return errOut
	}
	if err := fn(); err != nil || !now {
		return err
	}
	return errOut
}

func (s *crashing) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	what := "save"
	for _, r := range records {
		what += " " + string(r.Kind)
	}
	return s.crash(what, func() error { return s.MemoryStore.Save(ctx, m, records...) })
}

func (s *crashing) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	return s.crash("outcome", func() error { return s.MemoryStore.SetOutcome(ctx, resource, o) })
}

// TestOnceInterrupted: a round that ends at any of its writes, done or not, leaves to the
// next one exactly what it has not done.
func TestOnceInterrupted(t *testing.T) {
	for _, at := range []string{"save up", "outcome", "save succeeded"} {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newTimer(t)
				memory := autoscale.NewMemoryStore()
				store := &crashing{memory, "", after}
				w.store = store
				w.backlog.set(900)
				for range 4 {
					w.round()
				}
				store.call = at
				if _, err := w.try(5 * time.Minute); !errors.Is(err, errOut) {
					t.Fatalf("%s: %v", at, err)
				}
				time.Sleep(time.Minute)
				for range 3 {
					w.round()
				}
				records, err := memory.Records(t.Context(), "r", time.Time{}, 0)
				if err != nil {
					t.Fatal(err)
				}
				var acted []string
				for _, r := range records {
					if r.Kind != autoscale.Hold {
						acted = append(acted, string(r.Kind))
					}
				}
				if got := strings.Join(acted, " "); got != "up succeeded" || len(w.target.scalings()) != 1 {
					t.Errorf("%s, after %v: %s, scaled %+v", at, after, got, w.target.scalings())
				}
			})
		}
	}
}

// TestOnceFails: metrics that cannot be read are returned; a target or a store that is
// down is an error, and the metrics are kept all the same.
func TestOnceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimer(t)
		w.backlog.put(autoscale.Reading{}, errOut)
		r, err := w.try(time.Minute)
		if err != nil || len(r.Unread) != 1 || r.Unread[0].Cause != errOut.Error() || kinds(r) != "hold" {
			t.Errorf("a metric that cannot be read: %+v, %v", r, err)
		}
		w.backlog.set(1)
		time.Sleep(time.Minute)
		w.target.instances = -1
		if r, err = w.try(time.Minute); err == nil || !strings.Contains(err.Error(), "count instances") || kinds(r) != "hold" || len(r.Unread) != 0 {
			t.Errorf("a target that is down: %+v, %v", r, err)
		}
		if m, _ := w.store.Load(t.Context(), "r"); len(m.Windows["backlog"].Values) != 1 {
			t.Errorf("the state has %+v", m)
		}
	})
}

// TestLease: a lease is renewed while it is held, lost to another only once it has expired,
// and a store that is down ends nothing.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := autoscale.NewMemoryStore()
		lease := func(owner string) autoscale.Lease {
			return autoscale.Lease{Owner: owner, File: owner + ".yaml", Host: "h", Duration: 15 * time.Second}
		}
		down := &unrenewable{MemoryStore: store}
		held, release, err := autoscale.NewHolder(down, "r", lease("a"), nil).Hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(14 * time.Second)
			_, _, err := autoscale.NewHolder(store, "r", lease("b"), nil).Hold(t.Context())
			if other, ok := errors.AsType[*autoscale.LeasedError](err); !ok || other.Lease.Owner != "a" || !strings.Contains(err.Error(), "a.yaml on the host h") {
				t.Fatalf("a lease that is held: %v", err)
			}
		}
		down.failing = true
		time.Sleep(time.Minute)
		if held.Err() != nil {
			t.Error("a store that is down has ended the work")
		}
		_, other, err := autoscale.NewHolder(store, "r", lease("b"), nil).Hold(t.Context())
		if err != nil {
			t.Fatalf("a lease that has expired: %v", err)
		}
		down.failing = false
		time.Sleep(15 * time.Second)
		if _, ok := errors.AsType[*autoscale.LeasedError](context.Cause(held)); !ok {
			t.Errorf("the lease is another's, and the work goes on: %v", context.Cause(held))
		}
		release()
		if held, _ := store.TakeLease(t.Context(), "r", lease("c")); held == nil || held.Owner != "b" {
			t.Errorf("the release of one who has lost it ends the lease: %+v", held)
		}
		other()
		if held, _ := store.TakeLease(t.Context(), "r", lease("c")); held != nil {
			t.Errorf("released, and still held: %+v", held)
		}
	})
}

// unrenewable is a store whose leases cannot be renewed while it is down.
type unrenewable struct {
	*autoscale.MemoryStore
	failing bool
}

func (s *unrenewable) TakeLease(ctx context.Context, resource string, l autoscale.Lease) (*autoscale.Lease, error) {
	if s.failing {
		return nil, errOut
	}
	return s.MemoryStore.TakeLease(ctx, resource, l)
}

// TestZeroLimits: no cooldown, and a minimum of 0, stay so when the limits pass through
// several hands, as those of a file do.
func TestZeroLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTimer(t)
		limits, err := autoscale.Limits{Min: -1, CooldownUp: -1, MinPoints: 1}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		w.resource.Limits = limits
		w.backlog.set(900)
		for i := range 2 {
			if got := w.round(); got != "up succeeded" {
				t.Errorf("round %d: %s", i, got)
			}
		}
		w.backlog.set(0)
		time.Sleep(10 * time.Minute)
		for range 4 {
			w.round()
		}
		if n, _ := w.target.Instances(t.Context()); n != 0 {
			t.Errorf("%d instances, want 0", n)
		}
	})
}
