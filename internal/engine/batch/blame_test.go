package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// deliver runs a consumer with a delivery.
func (s *scene) deliver(d sluice.Delivery) (*sluice.Consumer, func()) {
	s.T.Helper()
	return enginetest.Run(s.T, s.Hub, s.Leases, d, sluice.AllPartitions, sluice.Config{Owner: "a", Observer: s})
}

// tables are those of a database, which may be missing.
type tables struct {
	mu      sync.Mutex
	missing map[string]bool
}

func (d *tables) set(table string, missing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.missing == nil {
		d.missing = map[string]bool{}
	}
	d.missing[table] = missing
}

// handle inserts an event into the table that its body names before the colon, or the table "rows".
// What follows the colon says how it fails.
func (d *tables) handle(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	table, how, _ := strings.Cut(string(e.Body), ":")
	d.mu.Lock()
	missing := d.missing[table]
	d.mu.Unlock()
	refused := &sluicetest.StatementError{Table: table, Err: errors.New("relation does not exist")}
	switch {
	case how == "rejected":
		return fmt.Errorf("decode: %w", driver.Reject(refused))
	case missing, how == "refused":
		return refused
	}
	return tx.Insert(table, e.Sequence)
}

func (d *tables) handler() sluice.Handler[*sluicetest.Tx] { return sluice.Each(d.handle) }

// A table that is dropped at any moment, and created again later, makes no dead letter.
func TestDroppedTable(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				random := rand.New(rand.NewPCG(seed, 1))
				var d tables
				_, end := s.Consume("a", d.handler(), sluice.Config{Seed: seed})
				defer end()
				sent := 0
				send := func(n int) { s.Send("0", slices.Repeat([]string{"orders"}, n)...); sent += n }
				waiting := []int{0, 1, 2, 19, 100, 3000}[random.IntN(6)]
				send(1000)
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
				d.set("orders", true)
				send(waiting)
				for range 10 + random.IntN(290) {
					time.Sleep(time.Second)
					if waiting > 0 && random.IntN(20) == 0 {
						send(1)
					}
				}
				d.set("orders", false)
				if !s.movesWithin(11*time.Second, int64(sent-1)) {
					t.Errorf("at %d of %d events 11 s after the end", s.Position("0"), sent)
				}
				if n := len(s.Store.Rows("orders")); n != sent || len(s.Letters()) != 0 {
					t.Errorf("%d rows of %d events, %d dead letters", n, sent, len(s.Letters()))
				}
			})
		})
	}
}

// One event that the database refuses in the same way, among good ones, is one dead letter, and its
// neighbours are on time.
func TestRefusedEvent(t *testing.T) {
	for _, at := range []int{0, 1, 50, 99} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				bodies := slices.Repeat([]string{"orders"}, 100)
				bodies[at] = "orders:refused"
				s.Send("0", bodies...)
				var d tables
				_, end := s.Consume("a", d.handler(), sluice.Config{})
				defer end()
				time.Sleep(10 * time.Second)
				if at == 99 { // there is none behind it that shows whose fault it is
					if len(s.Letters()) != 0 || s.Position("0") != 98 {
						t.Errorf("without a witness: %d dead letters, at %d", len(s.Letters()), s.Position("0"))
					}
					s.Send("0", "orders")
					time.Sleep(15 * time.Second)
				}
				if rows := len(s.Store.Rows("orders")); rows < 99 || len(s.Letters()) != 1 {
					t.Errorf("%d rows, %d dead letters", rows, len(s.Letters()))
				}
			})
		})
	}
}

// An event whose error the handler rejects is a dead letter at once, whatever the database said.
func TestRejectWins(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "orders:rejected")
		var d tables
		_, end := s.Consume("a", d.handler(), sluice.Config{})
		defer end()
		time.Sleep(time.Second)
		if len(s.Letters()) != 1 {
			t.Errorf("%d dead letters", len(s.Letters()))
		}
	})
}

// Events that are written to another table say nothing about a table that is missing.
func TestWitnessOfTheSameTable(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var d tables
		d.set("orders", true)
		var bodies []string
		for range 500 {
			bodies = append(bodies, "orders", "customers")
		}
		s.Send("0", bodies...)
		_, end := s.Consume("a", d.handler(), sluice.Config{})
		defer end()
		time.Sleep(10 * time.Minute)
		if len(s.Letters()) != 0 {
			t.Fatalf("%d dead letters", len(s.Letters()))
		}
		if !slices.ContainsFunc(s.Observations(driver.KindFailed), func(o driver.Observation) bool {
			return strings.Contains(o.Err.Error(), "partition is held") && strings.Contains(o.Err.Error(), "relation does not exist")
		}) {
			t.Errorf("the hold was not reported: %v", s.Observations(driver.KindFailed))
		}
		d.set("orders", false)
		time.Sleep(time.Minute)
		if o, c := len(s.Store.Rows("orders")), len(s.Store.Rows("customers")); o != 500 || c != 500 {
			t.Errorf("%d and %d rows", o, c)
		}
	})
}

// A table that comes and goes makes no dead letter, although other events succeed between.
func TestFlappingTable(t *testing.T) {
	for seed := range uint64(5) {
		stage(t, 1, func(s *scene) {
			random := rand.New(rand.NewPCG(seed, 2))
			var d tables
			s.Send("0", slices.Repeat([]string{"orders"}, 3000)...)
			_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				time.Sleep(100 * time.Millisecond)
				return d.handler()(ctx, tx, b)
			}, sluice.Config{MaxBatch: 5, Seed: seed})
			defer end()
			for missing := true; s.Position("0") < 2999; missing = !missing {
				d.set("orders", missing)
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			}
			if rows := len(s.Store.Rows("orders")); rows != 3000 || len(s.Letters()) != 0 {
				t.Errorf("seed %d: %d rows, %d dead letters", seed, rows, len(s.Letters()))
			}
		})
	}
}

// One of two servers behind an address lacks the table: each step may meet either.
func TestOneOfTwoServers(t *testing.T) {
	stage(t, 1, func(s *scene) {
		random := rand.New(rand.NewPCG(1, 2))
		var d tables
		s.Send("0", slices.Repeat([]string{"orders"}, 300)...)
		_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			d.set("orders", random.IntN(2) == 0)
			return d.handler()(ctx, tx, b)
		}, sluice.Config{MaxBatch: 5, Seed: 1})
		defer end()
		for s.Position("0") < 299 {
			time.Sleep(time.Second)
		}
		if rows := len(s.Store.Rows("orders")); rows != 300 || len(s.Letters()) != 0 {
			t.Errorf("%d rows, %d dead letters", rows, len(s.Letters()))
		}
	})
}

// A redrive that the database refuses waits while nothing shows that its event is the cause, and
// has failed once an event that waits shows it.
func TestRefusedRedrive(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "orders:rejected")
		var d tables
		_, end := s.Consume("a", d.handler(), sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.RedriveAll()
		refusing := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if e.Sequence == 0 {
				return &sluicetest.StatementError{Table: "orders", Err: errors.New("refused")}
			}
			return d.handle(ctx, tx, e)
		})
		_, end = s.Consume("b", refusing, sluice.Config{})
		defer end()
		time.Sleep(5 * time.Minute)
		if n := len(s.Letters(sluice.StatusRetry)); n != 1 {
			t.Errorf("%d dead letters wait for redrive", n)
		}
		for range 60 {
			s.Send("0", slices.Repeat([]string{"orders"}, 500)...)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		if rows := len(s.Store.Rows("orders")); rows != 30_000 {
			t.Errorf("%d rows", rows)
		}
	})
}

// A time limit that passes at the only event holds it: a table may be locked. Once another event is
// written the event is the cause.
func TestTimeLimitAlone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		slow := &slowStore{Store: s.Store, most: 1 << 30, slow: 0, failure: driver.ErrTimeLimit}
		s.Send("0", "good")
		_, end := s.deliver(sluice.Transactional[*sluicetest.Tx](slow, sluice.Each(enginetest.Insert)))
		defer end()
		time.Sleep(10 * time.Minute)
		if len(s.Letters()) != 0 {
			t.Fatalf("%d dead letters", len(s.Letters()))
		}
		s.Send("0", "good")
		time.Sleep(time.Minute)
		if len(s.Rows()) != 1 || len(s.Letters()) != 1 {
			t.Errorf("%d rows, %d dead letters", len(s.Rows()), len(s.Letters()))
		}
	})
}

// mapper is a mapping, which says in its errors whether it has mapped an event.
type mapper struct{ wrong, mapped atomic.Bool }

type unmapped struct{ mapper *mapper }

func (unmapped) Error() string { return "column total: body.totl: is missing" }

func (u unmapped) Unproved() bool { return !u.mapper.mapped.Load() }

func (m *mapper) apply(e *sluice.Event) error {
	if m.wrong.Load() || strings.HasPrefix(string(e.Body), "reject") {
		return driver.Reject(unmapped{m})
	}
	m.mapped.Store(true)
	return nil
}

// mappedDeliveries run a mapping in each delivery.
var mappedDeliveries = map[string]func(s *scene, m *mapper) sluice.Delivery{
	"transactional": func(s *scene, m *mapper) sluice.Delivery {
		return sluice.Transactional(s.Store, func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			var failed []error
			for i, e := range b.Events {
				if err := m.apply(e); err != nil {
					failed = append(failed, &driver.EventError{Index: i, Err: err})
				} else if err := tx.Insert("rows", e.Sequence); err != nil {
					return err
				}
			}
			return errors.Join(failed...)
		})
	},
	"batches": func(s *scene, m *mapper) sluice.Delivery {
		return sluice.Batches(s.Store, func(_ context.Context, b sluice.Batch) error {
			var failed []error
			for i, e := range b.Events {
				if err := m.apply(e); err != nil {
					failed = append(failed, &driver.EventError{Index: i, Err: err})
				}
			}
			return errors.Join(failed...)
		}, nil)
	},
	"at least once": func(s *scene, m *mapper) sluice.Delivery {
		return sluice.AtLeastOnce(s.Store, func(_ context.Context, e *sluice.Event) ([]int64, error) {
			return []int64{e.Sequence}, m.apply(e)
		}, doneSink{}, nil)
	},
}

// doneSink writes everything at once.
type doneSink struct{}

func (doneSink) Submit(_ context.Context, _ int64, done func(driver.WriteResult)) {
	done(driver.WriteResult{})
}

// A mapping that maps no event empties no partition into the dead letters.
func TestMappingThatMapsNothing(t *testing.T) {
	for name, delivery := range mappedDeliveries {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var m mapper
				m.wrong.Store(true)
				s.Send("0", slices.Repeat([]string{"good"}, 2000)...)
				_, end := s.deliver(delivery(s, &m))
				defer end()
				time.Sleep(30 * time.Minute)
				if n := len(s.Letters()); n != 0 {
					t.Errorf("%d dead letters", n)
				}
				if !slices.ContainsFunc(s.Observations(driver.KindFailed), func(o driver.Observation) bool {
					return strings.Contains(o.Err.Error(), "partition is held: the mapping has mapped none of ")
				}) {
					t.Errorf("the hold was not reported: %v", s.Observations(driver.KindFailed))
				}
				m.wrong.Store(false) // as a new process would
				if !s.movesWithin(time.Minute, 1999) || len(s.Letters()) != 0 {
					t.Errorf("at %d, %d dead letters", s.Position("0"), len(s.Letters()))
				}
			})
		})
	}
}

// Events that another mapping maps show nothing about one that maps none.
func TestMappingBesideAnother(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var orders, customers mapper
		orders.wrong.Store(true)
		var bodies []string
		for range 1000 {
			bodies = append(bodies, "customers", "orders")
		}
		s.Send("0", bodies...)
		_, end := s.Consume("a", func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			var failed []error
			for i, e := range b.Events {
				m := &orders
				if string(e.Body) == "customers" {
					m = &customers
				}
				if err := m.apply(e); err != nil {
					failed = append(failed, &driver.EventError{Index: i, Err: err})
				} else if err := tx.Insert("rows", e.Sequence); err != nil {
					return err
				}
			}
			return errors.Join(failed...)
		}, sluice.Config{})
		defer end()
		time.Sleep(30 * time.Minute)
		if n := len(s.Letters()); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		orders.wrong.Store(false)
		if !s.movesWithin(time.Minute, 1999) || len(s.Letters()) != 0 {
			t.Errorf("at %d, %d dead letters", s.Position("0"), len(s.Letters()))
		}
	})
}

// A few events that are not mapped become dead letters: at once if another is mapped, else after
// half a minute.
func TestEventsThatAreNotMapped(t *testing.T) {
	for name, delivery := range mappedDeliveries {
		for _, c := range []struct {
			bodies []string
			limit  time.Duration
		}{
			{[]string{"reject", "good"}, time.Second},
			{slices.Concat(slices.Repeat([]string{"reject"}, 15), []string{"good"}), time.Second},
			{[]string{"reject"}, 33 * time.Second},
			{slices.Repeat([]string{"reject"}, 5), 33 * time.Second},
		} {
			if name == "batches" { // which cannot try an event out of turn
				c.limit = 33 * time.Second
			}
			t.Run(fmt.Sprintf("%s/%d", name, len(c.bodies)), func(t *testing.T) {
				stage(t, 1, func(s *scene) {
					var m mapper
					_, end := s.deliver(delivery(s, &m))
					defer end()
					time.Sleep(time.Minute)
					s.Send("0", c.bodies...)
					bad := len(slices.DeleteFunc(slices.Clone(c.bodies), func(b string) bool { return b == "good" }))
					time.Sleep(c.limit + 5*time.Second)
					if n := len(s.Letters()); n != bad || s.Position("0") != int64(len(c.bodies)-1) {
						t.Errorf("%d dead letters, want %d; at %d", n, bad, s.Position("0"))
					}
				})
			})
		}
	}
}
