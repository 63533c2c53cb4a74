// Package blame proves for each database whose fault a failing statement is: that one event whose
// values make it fail is a dead letter and its neighbours are on time, and that what fails for
// every event makes no dead letter.
package blame

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/sluicetest"
)

// events is how many there are; the bad one is in the middle.
const events = 40

// Store is what a consumer needs of a database.
type Store[Tx any] struct {
	Leases driver.LeaseStore
	Store  interface {
		driver.TxStore[Tx]
		driver.DeadLetterStore
	}
	// Exec runs a statement with one parameter in a handler's transaction.
	Exec func(ctx context.Context, tx Tx, statement, value string) error
	// Do runs statements outside of any transaction, as an operator does.
	Do func(ctx context.Context, statements string) error
}

// Case is a statement of one parameter, and values with which it succeeds and fails.
type Case struct {
	Name, Setup, Statement, Good, Bad string
}

var groups atomic.Int64

// scene is a consumer at work.
type scene struct {
	t          *testing.T
	topic      sluice.Group
	hub        *sluicetest.Hub
	letters    func() []sluice.DeadLetter
	checkpoint func() int64
	held       atomic.Pointer[string] // the last report
}

func start[Tx any](t *testing.T, s Store[Tx], handle func(ctx context.Context, tx Tx, e *sluice.Event) error) *scene {
	t.Helper()
	need.RealTime(t)
	group := sluice.Group{Namespace: "test", Topic: "orders", Name: fmt.Sprint("blame", groups.Add(1))}
	sc := &scene{t: t, topic: group, hub: sluicetest.NewHub(group, 1)}
	consumer, err := sluice.New(sc.hub, s.Leases, sluice.Transactional(s.Store, sluice.Each(handle)), &sluice.Config{
		Owner: group.Name, LeaseFor: 3 * time.Second, AssignEvery: 20 * time.Millisecond,
		RetryMin: 5 * time.Millisecond, RetryMax: 200 * time.Millisecond, Seed: 1,
		Observer: driver.ObserverFunc(func(o driver.Observation) {
			if o.Kind == driver.KindFailed && o.Err != nil && strings.Contains(o.Err.Error(), "partition is held") {
				text := o.Err.Error()
				sc.held.Store(&text)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the consumer ended with %v", err)
		}
	})
	sc.letters = func() []sluice.DeadLetter {
		list, err := s.Store.List(ctx, group, sluice.DeadLetterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	sc.checkpoint = func() int64 {
		list, err := s.Store.Read(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return driver.Unset.Sequence
		}
		return list[0].Position.Sequence
	}
	return sc
}

func (sc *scene) send(values ...string) { sc.hub.Append("0", sluicetest.Bodies(values...)...) }

// await waits for a condition, as long as a busy machine may take.
func (sc *scene) await(what string, met func() bool) {
	sc.t.Helper()
	for range 6000 {
		if met() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	held := ""
	if p := sc.held.Load(); p != nil {
		held = *p
	}
	sc.t.Fatalf("waiting until %s: at %d, %d dead letters, last hold: %s", what, sc.checkpoint(), len(sc.letters()), held)
}

// OneBadEvent proves that each case's bad event is one dead letter, with its own error, and that
// all others are done.
func OneBadEvent[Tx any](t *testing.T, s Store[Tx], cases []Case) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Setup != "" {
				if err := s.Do(t.Context(), c.Setup); err != nil {
					t.Fatal(err)
				}
			}
			sc := start(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
				return s.Exec(ctx, tx, c.Statement, string(e.Body))
			})
			for i := range events {
				if i == events/2 {
					sc.send(c.Bad)
				} else {
					sc.send(c.Good)
				}
			}
			sc.await("all are done", func() bool { return sc.checkpoint() == events-1 })
			letters := sc.letters()
			if len(letters) != 1 || letters[0].Event.Sequence != events/2 {
				t.Errorf("%d dead letters", len(letters))
			}
			for _, l := range letters {
				t.Logf("event %d, %d attempts: %s", l.Event.Sequence, l.Attempts, l.Error)
			}
		})
	}
}

// Undone proves that what an operator does to a statement's table, and undoes, makes no dead
// letter.
func Undone[Tx any](t *testing.T, s Store[Tx], name, statement, broken, mended string) {
	t.Run(name, func(t *testing.T) {
		sc := start(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return s.Exec(ctx, tx, statement, string(e.Body))
		})
		sc.send("1", "2", "3")
		sc.await("the first are done", func() bool { return sc.checkpoint() == 2 })
		if err := s.Do(t.Context(), broken); err != nil {
			t.Fatal(err)
		}
		for i := range events {
			sc.send(fmt.Sprint(i))
		}
		sc.await("the partition is held", func() bool { return sc.held.Load() != nil })
		if err := s.Do(t.Context(), mended); err != nil {
			t.Fatal(err)
		}
		sc.await("all are done", func() bool { return sc.checkpoint() == events+2 })
		if letters := sc.letters(); len(letters) != 0 {
			t.Errorf("%d dead letters, the first: %s", len(letters), letters[0].Error)
		}
	})
}

// Alone proves that an event with no other beside it waits until one comes that shows whose fault
// it is.
func Alone[Tx any](t *testing.T, s Store[Tx], c Case) {
	t.Run(c.Name+" alone", func(t *testing.T) {
		sc := start(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return s.Exec(ctx, tx, c.Statement, string(e.Body))
		})
		sc.send(c.Bad)
		sc.await("the partition is held", func() bool { return sc.held.Load() != nil })
		if letters := sc.letters(); len(letters) != 0 {
			t.Fatalf("%d dead letters", len(letters))
		}
		sc.send(c.Good)
		sc.await("both are done", func() bool { return sc.checkpoint() == 1 })
		if letters := sc.letters(); len(letters) != 1 || letters[0].Event.Sequence != 0 {
			t.Errorf("%d dead letters", len(letters))
		}
	})
}

// Rejected proves that a handler's own word on an event counts more than the database's code.
func Rejected[Tx any](t *testing.T, s Store[Tx], c Case) {
	t.Run(c.Name+" rejected", func(t *testing.T) {
		sc := start(t, s, func(ctx context.Context, tx Tx, e *sluice.Event) error {
			return driver.Reject(s.Exec(ctx, tx, c.Statement, string(e.Body)))
		})
		sc.send(c.Bad)
		sc.await("it is a dead letter", func() bool { return len(sc.letters()) == 1 && sc.checkpoint() == 0 })
	})
}
