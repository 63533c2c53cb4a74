package sluicetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice"
)

// memory is the harness of the in-memory store.
func memory(testing.TB) TxHarness[*Tx] { return harness(new(Store)) }

func harness(s *Store) TxHarness[*Tx] {
	return TxHarness[*Tx]{
		Store:       s,
		DeadLetters: s,
		Put:         func(_ context.Context, tx *Tx, key string) error { return tx.Insert("effects", key) },
		Effects: func(context.Context) ([]string, error) {
			var keys []string
			for _, row := range s.Rows("effects") {
				keys = append(keys, row.(string))
			}
			return keys, nil
		},
		Break: func(_ context.Context, tx *Tx) error {
			if err := tx.InsertUnique("unique", "key", 1); err != nil {
				return err
			}
			return tx.InsertUnique("unique", "key", 2)
		},
		BreakLater: func(_ context.Context, tx *Tx) error {
			twice := write{table: "unique", key: "key", unique: true}
			tx.writes = append(tx.writes, twice, twice) // as if two transactions met
			return nil
		},
	}
}

// virtual runs a suite with each case in a bubble, in virtual time.
func virtual[H any](t *testing.T, checks []check[H], new func(t testing.TB) H) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, new(t)) })
		})
	}
}

// broken is a driver that is wrong in one way.
type broken[H any] struct {
	how string
	new func(t testing.TB) H
}

// caught sees that every broken driver fails the suite, and that there is no
// case that none of them fails.
func caught[H any](t *testing.T, checks []check[H], drivers []broken[H]) {
	t.Helper()
	unused := make(map[string]bool)
	for _, c := range checks {
		unused[c.name] = true
	}
	for _, d := range drivers {
		var by []string
		for _, c := range checks {
			if failures := failuresOf(t, c, d.new); failures != nil {
				by = append(by, fmt.Sprintf("%s: %s", c.name, failures[0]))
				delete(unused, c.name)
			}
		}
		if by == nil {
			t.Errorf("a driver that %s passes", d.how)
			continue
		}
		t.Logf("a driver that %s fails\n\t%s", d.how, strings.Join(by, "\n\t"))
	}
	for _, c := range checks {
		if unused[c.name] {
			t.Errorf("no broken driver fails %s", c.name)
		}
	}
}

// failuresOf runs a case in a bubble and returns what it notes.
func failuresOf[H any](t *testing.T, c check[H], new func(t testing.TB) H) []string {
	t.Helper()
	var failures []string
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.run(r, new(r))
		}()
		<-over
		failures = r.failures
	})
	return failures
}

// recorder is a test whose failures are kept to itself.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func TestLeasesInMemory(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		virtual(t, leaseChecks, func(testing.TB) leaseHarness { return newLeaseHarness(new(Leases), nil) })
	})
	TestLeases(t, func(testing.TB) driver.LeaseStore { return new(Leases) }, nil)
}

// hub is the harness of the in-memory hub.
func hub(testing.TB) SourceHarness { return hubHarness(NewHub(testGroup, 2)) }

func hubHarness(h *Hub) SourceHarness {
	return SourceHarness{
		Connect: func(testing.TB) driver.Source { return h },
		Append: func(_ context.Context, partition string, events ...*sluice.Event) error {
			h.Append(partition, events...)
			return nil
		},
		Trim: func(_ context.Context, partition string, before int64) error {
			h.Trim(partition, before)
			return nil
		},
		Recreate: func(context.Context) error {
			h.Recreate()
			return nil
		},
	}
}

func TestHubInMemory(t *testing.T) {
	t.Run("virtual", func(t *testing.T) { virtual(t, sourceChecks, hub) })
	TestSource(t, hub)
}

func TestStoreInMemory(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		virtual(t, txChecks[*Tx](), memory)
		virtual(t, deadLetterChecks[*Tx](), memory)
	})
	TestTxStore(t, memory)
	TestDeadLetters(t, memory)
}
