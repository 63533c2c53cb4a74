package deadletters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/deadletters"
	"github.com/sluice-go/sluice/sluicetest"
)

var group = sluice.Group{Namespace: "n", Topic: "t", Name: "g"}

// world is a topic of two partitions whose events were all dead-lettered.
type world struct {
	hub    *sluicetest.Hub
	store  *sluicetest.Store
	leases *sluicetest.Leases
	mended atomic.Bool // but for the bodies "bad"
}

func (w *world) handle(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	if !w.mended.Load() || string(e.Body) == "bad" {
		return driver.Reject(errors.New("odd"))
	}
	return tx.Insert("rows", fmt.Sprintf("%s/%d", e.Partition, e.Sequence))
}

func (w *world) consumer(t *testing.T, source driver.Source) *sluice.Consumer {
	t.Helper()
	c, err := sluice.New(source, w.leases, sluice.Transactional(w.store, sluice.Each(w.handle)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run has a consumer at work until the test calls what it returns.
func (w *world) run(t *testing.T) (stop func()) {
	c := w.consumer(t, w.hub)
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	return func() {
		if err := c.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func newWorld(t *testing.T, bodies ...string) *world {
	w := &world{hub: sluicetest.NewHub(group, 2), store: &sluicetest.Store{}, leases: &sluicetest.Leases{}}
	for i, b := range bodies {
		w.hub.Append(fmt.Sprint(i%2), sluicetest.Bodies(b)...)
	}
	stop := w.run(t)
	time.Sleep(time.Minute)
	stop()
	w.mended.Store(true)
	return w
}

func (w *world) admin(t *testing.T, source driver.Source) *deadletters.Admin {
	return &deadletters.Admin{Group: group, DeadLetters: w.store, Redrive: w.consumer(t, source).Redrive}
}

func (w *world) retry(t *testing.T, ctx context.Context, d *deadletters.Admin) (deadletters.Outcome, error) {
	t.Helper()
	selected, err := d.Select(t.Context(), sluice.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Mark(t.Context(), selected, time.Time{}); err != nil {
		t.Fatal(err)
	}
	return d.Follow(ctx, selected, func(deadletters.Outcome) {})
}

func (w *world) rows() []string {
	var rows []string
	for _, r := range w.store.Rows("rows") {
		rows = append(rows, r.(string))
	}
	slices.Sort(rows)
	return rows
}

func (w *world) expect(t *testing.T, so deadletters.Outcome, err error, applied, failed int, rows ...string) {
	t.Helper()
	if err != nil || so.Applied != applied || len(so.Failed) != failed || len(so.Waiting) != 0 || so.Discarded != 0 {
		t.Errorf("outcome %+v, %v; want %d applied, %d failed", so, err, applied, failed)
	}
	if got := w.rows(); !slices.Equal(got, rows) {
		t.Errorf("rows %v, want %v", got, rows)
	}
}

func TestWhereNobodyOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "bad", "c")
		so, err := w.retry(t, t.Context(), w.admin(t, w.hub))
		w.expect(t, so, err, 3, 1, "0/0", "1/0", "1/1")
		if l := so.Failed[0]; l.Event.Sequence != 1 || l.Event.Partition != "0" || l.Error != "odd" {
			t.Errorf("failed again: %+v", l)
		}
	})
}

func TestWhereAnOwnerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "bad", "c")
		defer w.run(t)()
		time.Sleep(10 * time.Second)
		so, err := w.retry(t, t.Context(), w.admin(t, w.hub))
		w.expect(t, so, err, 3, 1, "0/0", "1/0", "1/1")
	})
}

func TestTwoCommandsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c", "d", "e", "f")
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if so, err := w.retry(t, t.Context(), w.admin(t, w.hub)); err != nil || len(so.Failed)+len(so.Waiting) != 0 {
					t.Errorf("outcome %+v, %v", so, err)
				}
			})
		}
		both.Wait()
		w.expect(t, deadletters.Outcome{}, nil, 0, 0, "0/0", "0/1", "0/2", "1/0", "1/1", "1/2")
	})
}

func TestWithoutTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		var told error
		so, err := w.retry(t, t.Context(), w.admin(t, &deadletters.OfflineSource{
			Source: &absent{}, Group: group, Checkpoints: w.store, Unreachable: func(err error) { told = err },
		}))
		w.expect(t, so, err, 2, 0, "0/0", "1/0")
		if !errors.Is(told, errAbsent) {
			t.Errorf("told %v", told)
		}
		if _, err := w.retry(t, t.Context(), w.admin(t, &absent{})); err != nil {
			t.Errorf("nothing to do, and yet %v", err)
		}
	})
}

// One request without an answer does not end a command; an outage does.
func TestRedriveThatFails(t *testing.T) {
	for failures, survives := range map[int]bool{2: true, 3: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			d, redrive, calls := w.admin(t, w.hub), w.consumer(t, w.hub).Redrive, 0
			d.Redrive = func(ctx context.Context) (int, int, error) {
				if calls++; calls <= failures {
					return 0, 0, errAbsent
				}
				return redrive(ctx)
			}
			so, err := w.retry(t, t.Context(), d)
			if survives {
				w.expect(t, so, err, 2, 0, "0/0", "1/0")
			} else if !errors.Is(err, errAbsent) || len(so.Waiting) != 2 {
				t.Errorf("outcome %+v, %v", so, err)
			}
		})
	}
}

func TestWhatWaitsStaysMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		if _, err := w.leases.Acquire(t.Context(), group, "0", "sleeper", time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		so, err := w.retry(t, ctx, w.admin(t, w.hub))
		if !errors.Is(err, context.DeadlineExceeded) || len(so.Waiting) != 1 || so.Applied != 0 {
			t.Errorf("outcome %+v, %v", so, err)
		}
		selected, err := w.store.List(t.Context(), group, sluice.DeadLetterFilter{})
		if err != nil || len(selected) != 1 || selected[0].Status != sluice.StatusRetry {
			t.Errorf("dead letters %+v, %v", selected, err)
		}
	})
}

func TestWhatIsDiscardedMeanwhileIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		if _, err := w.leases.Acquire(t.Context(), group, "0", "sleeper", time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() {
			if _, err := w.store.Discard(t.Context(), group, sluice.DeadLetterFilter{}); err != nil {
				t.Error(err)
			}
		})
		so, err := w.retry(t, t.Context(), w.admin(t, w.hub))
		if err != nil || so.Discarded != 1 || so.Applied+len(so.Failed)+len(so.Waiting) != 0 {
			t.Errorf("outcome %+v, %v", so, err)
		}
	})
}

func TestSelectPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, make([]string, 1201)...)
		d := w.admin(t, w.hub)
		for limit, want := range map[int]int{0: 1201, 500: 500, 700: 700, 5000: 1201} {
			selected, err := d.Select(t.Context(), sluice.DeadLetterFilter{Limit: limit})
			if err != nil || len(selected) != want {
				t.Errorf("limit %d: %d dead letters, %v", limit, len(selected), err)
			}
		}
		all, err := d.Select(t.Context(), sluice.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := d.Discard(t.Context(), all); n != 1201 || err != nil {
			t.Errorf("%d discarded, %v", n, err)
		}
	})
}

var errAbsent = errors.New("no route")

// absent is a hub that can't be reached.
type absent struct{ driver.Source }

func (*absent) Describe(context.Context) (sluice.Topic, error) { return sluice.Topic{}, errAbsent }

func (*absent) Bounds(context.Context, string) (driver.Bounds, error) {
	return driver.Bounds{}, errAbsent
}

// counting counts the dead letters that are listed.
type counting struct {
	driver.DeadLetterStore
	listed, counted atomic.Int64
}

func (c *counting) Count(ctx context.Context, g sluice.Group, f sluice.DeadLetterFilter) ([]driver.DeadLetterCount, error) {
	c.counted.Add(1)
	return c.DeadLetterStore.Count(ctx, g, f)
}

func (c *counting) List(ctx context.Context, g sluice.Group, f sluice.DeadLetterFilter) ([]sluice.DeadLetter, error) {
	list, err := c.DeadLetterStore.List(ctx, g, f)
	c.listed.Add(int64(len(list)))
	return list, err
}

// While nothing changes, what waits is counted by the store and listed seldom.
func TestFollowListsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, make([]string, 1000)...)
		for _, partition := range []string{"0", "1"} {
			if _, err := w.leases.Acquire(t.Context(), group, partition, "sleeper", time.Hour, 0); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := w.admin(t, w.hub)
		c := &counting{DeadLetterStore: w.store}
		d.DeadLetters = c
		if so, err := w.retry(t, ctx, d); !errors.Is(err, context.DeadlineExceeded) || len(so.Waiting) != 1000 {
			t.Errorf("%d wait, %v", len(so.Waiting), err)
		}
		if n := c.listed.Load(); n > 15_000 {
			t.Errorf("%d dead letters were listed in a minute for 1,000 that wait", n)
		}
		if n := c.counted.Load(); n > 40 {
			t.Errorf("they were counted %d times in a minute", n)
		}
	})
}
