package sluicetest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

type order struct {
	ID    int
	Total float64
}

var saveOrder = sluice.Typed(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event, o order) error {
	if o.Total < 0 {
		return errors.New("negative total")
	}
	return tx.InsertUnique("orders", fmt.Sprint(o.ID), o)
})

func TestRun(t *testing.T) {
	store := new(sluicetest.Store)
	result := sluicetest.Run(t, store, saveOrder, sluicetest.Bodies(
		`{"id":1,"total":9.5}`, `no json`, `{"id":2,"total":-1}`, `{"id":1,"total":3}`, `{"id":3,"total":4}`), nil)
	if got, want := store.Rows("orders"), []any{order{1, 9.5}, order{3, 4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("orders are %v, want %v", got, want)
	}
	var parked []string
	for _, l := range result.DeadLetters {
		parked = append(parked, fmt.Sprintf("%s after %d: %s", l.Event.Body, l.Attempts, l.Error))
	}
	want := []string{
		`no json after 1: decode: invalid character 'o' in literal null (expecting 'u')`,
		`{"id":2,"total":-1} after 3: negative total`,
		`{"id":1,"total":3} after 3: insert into orders: duplicate key "1" violates the unique constraint`,
	}
	if !slices.Equal(parked, want) {
		t.Errorf("parked are %q, want %q", parked, want)
	}
	if len(result.Checkpoints) != 1 || result.Checkpoints[0].Position.Sequence != 4 {
		t.Errorf("progress is %+v, want position 4", result.Checkpoints)
	}
}

func TestRunAgainAndWithPartitions(t *testing.T) {
	store := new(sluicetest.Store)
	for round := range 2 {
		var events []*sluice.Event
		for i := range 100 {
			events = append(events, &sluice.Event{Partition: fmt.Sprint(i % 3), Body: fmt.Append(nil, i)})
		}
		var opened atomic.Int64
		result := sluicetest.Run(t, store, sluice.Handler[*sluicetest.Tx](func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if len(b.Events) > 7 {
				t.Errorf("a batch of %d events, asked for 7", len(b.Events))
			}
			for _, e := range b.Events {
				if err := tx.Insert("rows "+b.Partition, string(e.Body)); err != nil {
					return err
				}
			}
			return nil
		}), events, &sluice.Config{MaxBatch: 7, Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindOpened {
				opened.Add(1)
			}
		})})
		if n := opened.Load(); n != 3 {
			t.Errorf("the caller's observer saw %d partitions being opened, want 3", n)
		}
		if len(result.Checkpoints) != 3 || result.DeadLetters != nil {
			t.Errorf("result is %+v, want three partitions and no dead letters", result)
		}
		n := 0
		for p := range 3 {
			n += len(store.Rows(fmt.Sprint("rows ", p)))
		}
		if want := 100 * (round + 1); n != want {
			t.Errorf("%d rows, want %d", n, want)
		}
	}
	if r := sluicetest.Run(t, store, saveOrder, nil, nil); len(r.DeadLetters) != 0 {
		t.Errorf("without events: %+v", r)
	}
}

// A program's configuration may be meant for several processes; there is one here.
func TestRunTakesAllPartitions(t *testing.T) {
	events := sluicetest.Bodies(`{"id":1}`, `{"id":2}`)
	events[1].Partition = "1"
	store := new(sluicetest.Store)
	sluicetest.Run(t, store, saveOrder, events, &sluice.Config{Partitions: 1})
	if n := len(store.Rows("orders")); n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
}

// outage makes the store fail for a while.
type outage struct{ end time.Time }

var errDown = errors.New("the database is down")

func (o outage) Before(op sluicetest.Op, _ sluice.Lease) error {
	if op != sluicetest.OpRead && time.Now().Before(o.end) {
		return errDown
	}
	return nil
}

func (o outage) Commit(_ driver.Step, apply func() error) error { return apply() }

func TestRunInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		store := &sluicetest.Store{Faults: outage{end: began.Add(10 * time.Second)}}
		result := sluicetest.Run(t, store, saveOrder, sluicetest.Bodies(`{"id":1}`, `{"id":2}`), nil)
		if n := len(store.Rows("orders")); n != 2 || len(result.DeadLetters) != 0 {
			t.Errorf("%d orders and %d dead letters after an outage, want 2 and none", n, len(result.DeadLetters))
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("took %v of virtual time, want the outage's 10 s", took)
		}
	})
}

// In a bubble a handler may ask for hours, in each delivery.
type noRecords struct{}

func (noRecords) Submit(context.Context, int, func(driver.WriteResult)) { panic("no records") }

func TestDeliverInVirtualTime(t *testing.T) {
	for _, name := range []string{"batches", "at least once", "transactional", "replay"} {
		synctest.Test(t, func(t *testing.T) {
			began, calls := time.Now(), 0
			one := func(*sluice.Event) error {
				if calls++; time.Since(began) < 5*time.Hour {
					return driver.RetryAfter(errors.New("later"), time.Hour)
				}
				return nil
			}
			handle := func(_ context.Context, b sluice.Batch) error { return one(b.Events[0]) }
			delivery := map[string]sluice.Delivery{
				"batches":       sluice.Batches(new(sluicetest.Store), handle, nil),
				"at least once": sluice.AtLeastOnce(new(sluicetest.Store), func(_ context.Context, e *sluice.Event) ([]int, error) { return nil, one(e) }, noRecords{}, nil),
				"transactional": sluice.Transactional(new(sluicetest.Store), func(ctx context.Context, _ *sluicetest.Tx, b sluice.Batch) error { return handle(ctx, b) }),
				"replay":        sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error { return nil }}),
			}[name]
			sluicetest.Deliver(t, delivery, sluicetest.Bodies("a"), nil)
			if took := time.Since(began); name != "replay" && (took < 5*time.Hour || took > 6*time.Hour || calls > 10) {
				t.Errorf("%s: %d calls, done after %v", name, calls, took)
			}
		})
	}
}
