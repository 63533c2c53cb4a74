package sluicetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

// A handler that ends its transaction, past the store, fails the test that runs it.
func TestRunFailsWhereTheHandlerEndsItsTransaction(t *testing.T) {
	rogue := sluice.Each(func(_ context.Context, tx *Tx, e *sluice.Event) error {
		if err := tx.Insert("rows", string(e.Body)); err != nil || string(e.Body) != "b" {
			return err
		}
		return tx.endPast(nil)
	})
	failures := suite.Failures(t, func(t testing.TB) { Run(t, new(Store), rogue, Bodies("a", "b", "c"), nil) })
	const want = "a partition has stopped: partition 0: events 0 to 2: commit partition 0: handler ended its transaction: some of its writes may be committed"
	if len(failures) != 1 || !strings.Contains(failures[0], want) {
		t.Errorf("got %q, want %q", failures, want)
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	insert := sluice.Each(func(_ context.Context, tx *Tx, e *sluice.Event) error { return tx.Insert("rows", string(e.Body)) })
	down := func(store *Store) {
		store.Faults = &script{outage: func(op Op, _ sluice.Lease) error {
			if op == OpCommit {
				return errors.New("the database is down")
			}
			return nil
		}}
	}
	for _, c := range []struct {
		what   string
		bend   func(*Store)
		events []*sluice.Event
		cfg    *sluice.Config
		want   string
	}{
		{"an outage without end", down, Bodies("a"), nil, "nothing was committed for 24h0m0s; checkpoints are at map[0:origin], want map[0:0]; the last failure: event 0: commit: the database is down"},
		{"a partition that is none", func(*Store) {}, []*sluice.Event{{Partition: "left"}}, nil, `event 0 is for partition "left"`},
		{"a partition written oddly", func(*Store) {}, []*sluice.Event{{}, {Partition: "01"}}, nil, `event 1 is for partition "01"`},
		{"too many partitions", func(*Store) {}, []*sluice.Event{{Partition: "1000000000"}}, nil, "below 1024"},
		{"a config that is refused", func(*Store) {}, Bodies("a"), &sluice.Config{Attempts: -1}, "attempts"},
		{"a start that is none", func(*Store) {}, Bodies("a"), &sluice.Config{Start: sluice.Start{Kind: 99}}, "start of kind 99"},
		{"a start that the log refuses", func(*Store) {}, Bodies("a"), &sluice.Config{Start: sluice.FromOffset("x")}, `offset "x" is not a number`},
	} {
		failures := suite.Failures(t, func(t testing.TB) {
			store := new(Store)
			c.bend(store)
			Run(t, store, insert, c.events, c.cfg)
		})
		if len(failures) != 1 || !strings.Contains(failures[0], c.want) {
			t.Errorf("%s: got %q, want %q", c.what, failures, c.want)
		}
	}
}

// A handler that changes what it was given fails the test, in each delivery.
func TestRunFailsWhereAnEventIsChanged(t *testing.T) {
	spoil := map[string]func(e *sluice.Event){
		"its body":       func(e *sluice.Event) { e.Body[0] = 'x' },
		"a property":     func(e *sluice.Event) { e.Properties["type"] = "x" },
		"its key":        func(e *sluice.Event) { e.Key += "x" },
		"nothing at all": func(*sluice.Event) {},
	}
	for what, change := range spoil {
		handler := func(_ context.Context, b sluice.Batch) error {
			for _, e := range b.Events {
				change(e)
			}
			return nil
		}
		deliveries := map[string]sluice.Delivery{
			"batches": sluice.Batches(new(Store), handler, nil),
			"replay":  sluice.Replay(sluice.Replayer{Apply: handler}),
			"at least once": sluice.AtLeastOnce(new(Store), func(ctx context.Context, e *sluice.Event) ([]int, error) {
				return nil, handler(ctx, sluice.Batch{Events: []*sluice.Event{e}})
			}, nothing{}, nil),
			"transactional": sluice.Transactional(new(Store), func(ctx context.Context, _ *Tx, b sluice.Batch) error { return handler(ctx, b) }),
		}
		for name, delivery := range deliveries {
			failures := suite.Failures(t, func(t testing.TB) {
				Deliver(t, delivery, []*sluice.Event{{Body: []byte("abc"), Properties: map[string]any{"type": "a"}}}, nil)
			})
			if changed := what != "nothing at all"; changed != (len(failures) == 1 && strings.Contains(failures[0], "was changed by the handler")) {
				t.Errorf("%s, %s changed: %q", name, what, failures)
			}
		}
	}
}

// nothing is a sink that gets no records.
type nothing struct{}

func (nothing) Submit(context.Context, int, func(driver.WriteResult)) { panic("no records") }
