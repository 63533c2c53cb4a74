package sluicetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/storetest"
)

// The drivers in memory pass the conformance suites, and the suites are tested on variants of
// them that are broken on purpose, in the files broken*_test.go. Those are here and not with
// the suites, because they change what is inside of the drivers.

// memory is the harness of the in-memory store.
func memory(testing.TB) storetest.TxHarness[*Tx] { return harness(new(Store)) }

func harness(s *Store) storetest.TxHarness[*Tx] {
	return storetest.TxHarness[*Tx]{
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
		Doors: []storetest.Door[*Tx]{
			{Name: "commit past the store", End: func(_ context.Context, tx *Tx) error { return tx.endPast(nil) }},
			{Name: "commit past the store, another transaction", End: func(_ context.Context, tx *Tx) error {
				return tx.endPast([]write{{table: "effects", row: "more"}})
			}},
			{Name: "what is refused", Refused: true, End: func(context.Context, *Tx) error { return errors.New("a handler cannot commit") }},
		},
		Lose: func(how storetest.Loss, underway func()) (deliver func()) {
			network := &losing{how: how, underway: underway}
			s.Faults = network
			return network.deliver
		},
	}
}

// endPast commits what a handler has written, as SQL that the store does not see does, and then
// more.
func (tx *Tx) endPast(more []write) error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	tx.broken = driver.ErrHandlerEnded
	return errors.Join(tx.store.insert(tx.writes), tx.store.insert(more))
}

// endedPast reports whether endPast was called.
func (tx *Tx) endedPast() bool {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return errors.Is(tx.broken, driver.ErrHandlerEnded)
}

// losing is a network that loses one commit.
type losing struct {
	how      storetest.Loss
	underway func()
	lost     bool
	late     func() error
}

func (l *losing) Before(Op, driver.Lease) error { return nil }

func (l *losing) Commit(_ driver.Step, apply func() error) error {
	if l.lost {
		return apply()
	}
	l.lost = true
	if l.underway != nil {
		l.underway()
	}
	switch l.how {
	case storetest.AnswerLost:
		apply()
	case storetest.ArrivesLate:
		l.late = apply
	}
	return driver.ErrUnknown
}

func (l *losing) deliver() {
	if l.late != nil {
		l.late()
	}
}

// hub is the harness of the in-memory hub.
func hub(testing.TB) storetest.SourceHarness { return hubHarness(NewHub(testGroup, 2)) }

func hubHarness(h *Hub) storetest.SourceHarness {
	return storetest.SourceHarness{
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

// sparseHub is the harness of the in-memory hub with a sparse topic.
func sparseHub(testing.TB) storetest.SourceHarness { return sparseHarness(NewHub(testGroup, 2)) }

func sparseHarness(h *Hub) storetest.SourceHarness {
	h.Sparse()
	harness := hubHarness(h)
	harness.Gap = func(_ context.Context, partition string) error {
		h.Append(partition, &sluice.Event{Control: true}, &sluice.Event{Control: true})
		return nil
	}
	harness.Truncate = func(_ context.Context, partition string, end int64) error {
		h.Truncate(partition, end)
		return nil
	}
	harness.Features = storetest.SourceFeatures{SharedOffsets: true, Headers: true, Keys: true, Nulls: true, Created: true}
	return harness
}

func testLeases(t *testing.T, new func(t testing.TB) driver.LeaseStore) {
	storetest.TestLeases(t, new, &storetest.LeasesConfig{ClockBack: clockBack, Silence: silence})
}

// silence makes the server of a store silent, if it has one.
func silence(t testing.TB, store driver.LeaseStore) (end func()) {
	if b, bent := store.(*bentLeases); bent && b.server != nil {
		return b.server.begin(t)
	}
	return nil
}

// clockBack sets the clock of a store back.
func clockBack(t testing.TB, store driver.LeaseStore, by time.Duration) {
	var l *Leases
	switch s := store.(type) {
	case *Leases:
		l = s
	case *bentLeases:
		l = s.Leases
	default:
		t.Fatalf("no clock of a %T is known", store)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Now = func() time.Time { return time.Now().Add(-by) }
}

func TestLeasesInMemory(t *testing.T) {
	memory := func(testing.TB) driver.LeaseStore { return new(Leases) }
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { testLeases(t, memory) })
	})
	t.Run("real", func(t *testing.T) {
		need.RealTime(t) // leases run out
		testLeases(t, memory)
	})
}

func TestHubInMemory(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { storetest.TestSource(t, hub) })
	})
	storetest.TestSource(t, hub)
	t.Run("sparse", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { storetest.TestSource(t, sparseHub) })
	})
}

func TestStoreInMemory(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		suite.Virtual(t, func(t *testing.T) { storetest.TestTxStore(t, memory) })
		suite.Virtual(t, func(t *testing.T) { storetest.TestDeadLetterStore(t, memory) })
	})
	storetest.TestTxStore(t, memory)
	storetest.TestDeadLetterStore(t, memory)
}
