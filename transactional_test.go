package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// scene is a consumer's surroundings in one bubble.
type scene struct {
	panics bool // a driver panics in this test
	t      *testing.T
	hub    *sluicetest.Hub
	leases *ledger
	store  *sluicetest.Store

	stampsFrom []stamp.Source // of its consumers

	mu   sync.Mutex
	seen []driver.Observation
}

func stage(t *testing.T, partitions int, run func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		run(&scene{
			t: t, hub: sluicetest.NewHub(group, partitions), leases: newLedger(), store: &sluicetest.Store{},
			stampsFrom: []stamp.Source{{Topic: "flights"}},
		})
	})
}

func (s *scene) Observe(o driver.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Err != nil && !s.panics && strings.Contains(o.Err.Error(), "panic outside of the handler") {
		s.t.Errorf("partition %s: %v", o.Partition, o.Err)
	}
	s.seen = append(s.seen, o)
}

func (s *scene) count(k driver.ObservationKind) int { return len(s.of(k)) }

func (s *scene) consume(owner string, h sluice.Handler[*sluicetest.Tx], cfg sluice.Config) (*sluice.Consumer, func()) {
	s.t.Helper()
	cfg.Owner, cfg.Observer, cfg.StampsFrom = owner, s, s.stampsFrom
	return consumer(s.t, s.hub, s.leases, s.store, h, sluice.AllPartitions, cfg)
}

// rows are the sequence numbers in the table, in the order of their commits.
func (s *scene) rows() (list []int64) {
	for _, r := range s.store.Rows("rows") {
		list = append(list, r.(int64))
	}
	return list
}

func (s *scene) letters(status ...sluice.DeadLetterStatus) []sluice.DeadLetter {
	return must(s.store.List(s.t.Context(), group, sluice.DeadLetterFilter{Status: status}))
}

func (s *scene) position(partition string) int64 {
	for _, p := range must(s.store.Read(s.t.Context(), group)) {
		if p.Partition == partition {
			return p.Position.Sequence
		}
	}
	return driver.Unset.Sequence
}

func (s *scene) send(partition string, bodies ...string) {
	s.hub.Append(partition, sluicetest.Bodies(bodies...)...)
}

// insert writes an event's row, then fails if the body says so: the row must
// not stay.
func insert(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	if err := tx.Insert("rows", e.Sequence); err != nil {
		return err
	}
	switch body := string(e.Body); {
	case strings.HasPrefix(body, "reject"):
		return driver.Reject(errors.New(body))
	case strings.HasPrefix(body, "bad"):
		return errors.New(body)
	case strings.HasPrefix(body, "panic"):
		panic(body)
	}
	return nil
}

// whole is [insert] by a handler that does not say which event is to blame.
func whole(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	for _, e := range b.Events {
		if err := insert(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

func TestFailuresAreTakenOut(t *testing.T) {
	for name, h := range map[string]sluice.Handler[*sluicetest.Tx]{"each": sluice.Each(insert), "whole": whole} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var bodies, failing []string
				for n := range 100 {
					body := "good"
					switch n {
					case 0, 31, 32, 99:
						body = fmt.Sprintf("reject %d", n)
					case 50, 77:
						body = fmt.Sprintf("bad %d", n)
					case 60:
						body = "panic"
					}
					bodies = append(bodies, body)
					if body != "good" {
						failing = append(failing, body)
					}
				}
				s.send("0", bodies...)
				_, end := s.consume("a", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				if rows := s.rows(); len(rows) != 93 || !slices.IsSorted(rows) {
					s.t.Errorf("%d rows: %v", len(rows), rows)
				}
				var parked []string
				for _, l := range s.letters(sluice.StatusDead) {
					full := must(s.store.Get(s.t.Context(), group, l.ID))
					if string(full.Event.Body) != bodies[l.Event.Sequence] {
						s.t.Errorf("dead letter %d has body %q", l.Event.Sequence, full.Event.Body)
					}
					want := 3
					if strings.HasPrefix(bodies[l.Event.Sequence], "reject") {
						want = 1
					}
					if l.Attempts != want || !strings.Contains(l.Error, bodies[l.Event.Sequence]) {
						s.t.Errorf("event %d: %d attempts, error %q", l.Event.Sequence, l.Attempts, l.Error)
					}
					parked = append(parked, bodies[l.Event.Sequence])
				}
				if !slices.Equal(parked, failing) {
					s.t.Errorf("parked %v", parked)
				}
				if p := s.position("0"); p != 99 {
					s.t.Errorf("checkpoint at %d", p)
				}
			})
		})
	}
}

func TestAttemptsSurviveRestarts(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "bad")
		tries := 0
		h := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			tries++
			return insert(ctx, tx, e)
		})
		for n := range 3 {
			_, end := s.consume(fmt.Sprint("a", n), h, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
			time.Sleep(time.Minute)
			end()
		}
		if tries != 3 || len(s.letters()) != 1 {
			s.t.Errorf("%d tries, %d dead letters", tries, len(s.letters()))
		}
	})
}

// outages makes the store fail as long as it is down.
type outages struct {
	mu   sync.Mutex
	down bool
}

func (o *outages) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
}

func (o *outages) Before(sluicetest.Op, sluice.Lease) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return errors.New("the database is down")
	}
	return nil
}

func (o *outages) Commit(_ driver.Step, apply func() error) error {
	if err := o.Before("", sluice.Lease{}); err != nil {
		return err
	}
	return apply()
}

func TestOutageIsNobodysFault(t *testing.T) {
	stage(t, 2, func(s *scene) {
		faults := &outages{}
		s.store.Faults = faults
		_, end := s.consume("a", sluice.Each(insert), sluice.Config{})
		for n := range 300 {
			s.send(fmt.Sprint(n%2), "good")
			if n == 100 {
				faults.set(true)
			}
			if n == 160 {
				faults.set(false)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		if len(s.rows()) != 300 || len(s.store.Rows("dead")) != 0 || len(s.letters()) != 0 {
			s.t.Errorf("%d rows, %d dead letters", len(s.rows()), len(s.letters()))
		}
		if s.count(driver.KindFailed) == 0 {
			s.t.Error("nobody was told")
		}
		end()
	})
}

// An event that kills the process is found and parked, its neighbours are not.
func TestKillerIsFound(t *testing.T) {
	stage(t, 2, func(s *scene) {
		for n := range 40 {
			body := "good"
			if n == 17 {
				body = "killer"
			}
			s.send("0", body)
			s.send("1", "good")
		}
		deaths := 0
		for life := range 20 {
			dead := make(chan struct{})
			owner := fmt.Sprint("life", life)
			h := sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				if string(e.Body) == "killer" {
					// The process is gone: from here on nothing it does arrives.
					s.leases.cutOff(owner)
					close(dead)
					<-ctx.Done()
					return ctx.Err()
				}
				return insert(ctx, tx, e)
			})
			store := &mortal{Store: s.store, dead: dead}
			c := must(sluice.New(s.hub, s.leases, sluice.Transactional(store, h), &sluice.Config{Owner: owner, Observer: s}))
			ctx, cancel := context.WithCancel(s.t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = c.Run(ctx) }()
			select {
			case <-dead:
				deaths++
			case <-time.After(2 * time.Minute):
			}
			cancel()
			<-done
			if s.position("0") == 39 && s.position("1") == 39 {
				break
			}
		}
		letters := s.letters()
		if len(letters) != 1 || letters[0].Event.Sequence != 17 || !strings.Contains(letters[0].Error, "process ended 3 times") {
			s.t.Errorf("dead letters: %+v", letters)
		}
		if n := len(s.rows()); n != 79 {
			s.t.Errorf("%d rows", n)
		}
		if deaths != 6 {
			s.t.Errorf("it took %d deaths, want 3 and 3 more", deaths)
		}
	})
}

// mortal is a store as a process sees it that can die.
type mortal struct {
	*sluicetest.Store
	dead chan struct{}
}

func (m *mortal) gone() error {
	select {
	case <-m.dead:
		return errCut
	default:
		return nil
	}
}

func (m *mortal) Leave(ctx context.Context, l sluice.Lease) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Leave(ctx, l)
}

func (m *mortal) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.Commit(ctx, step, func(ctx context.Context, tx *sluicetest.Tx) error {
		if fn != nil {
			if err := fn(ctx, tx); err != nil {
				return err
			}
		}
		return m.gone()
	})
}

func (m *mortal) RecordAttempt(ctx context.Context, l sluice.Lease, at sluice.Position, trial driver.AttemptRecord) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.Store.RecordAttempt(ctx, l, at, trial)
}

func TestStartPositions(t *testing.T) {
	for _, c := range []struct {
		start sluice.Start
		want  int
	}{
		{sluice.Earliest(), 11}, {sluice.Latest(), 1}, {sluice.FromSequence(7), 4}, {sluice.Ago(3*time.Hour + time.Minute), 4},
	} {
		t.Run(c.start.String(), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				for range 10 {
					s.send("0", "good")
					time.Sleep(time.Hour)
				}
				_, end := s.consume("a", sluice.Each(insert), sluice.Config{Start: c.start})
				time.Sleep(time.Minute)
				end() // the start was chosen once: what comes in between is not skipped
				s.send("0", "good")
				time.Sleep(5 * time.Hour)
				_, end = s.consume("b", sluice.Each(insert), sluice.Config{Start: c.start})
				time.Sleep(time.Minute)
				if n := len(s.rows()); n != c.want {
					s.t.Errorf("%d rows, want %d: %v", n, c.want, s.rows())
				}
				end()
			})
		})
	}
}

func TestStopsWhereAPersonMustAct(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(s *scene)
		want error
	}{
		{"retention", func(s *scene) { s.send("0", "lost"); s.hub.Trim("0", 2) }, sluice.ErrRetention},
		{"recreated", func(s *scene) { s.hub.Recreate(); s.send("0", "new", "new") }, sluice.ErrRecreated},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.send("0", "good")
				_, end := s.consume("a", sluice.Each(insert), sluice.Config{})
				time.Sleep(time.Minute)
				end()
				c.harm(s)
				s.send("0", "good")
				_, end = s.consume("b", sluice.Each(insert), sluice.Config{})
				time.Sleep(5 * time.Minute)
				if n := len(s.rows()); n != 1 {
					s.t.Fatalf("%d rows: something was skipped silently", n)
				}
				if n := s.count(driver.KindStopped); n != 1 {
					s.t.Errorf("told %d times", n)
				}
				for _, o := range s.of(driver.KindStopped) {
					if !errors.Is(o.Err, c.want) || !strings.Contains(o.Err.Error(), "checkpoints set") {
						s.t.Errorf("told %v", o.Err)
					}
				}
				// A person acts, and the partition goes on by itself.
				topic := must(s.hub.Describe(s.t.Context()))
				bounds := must(s.hub.Bounds(s.t.Context(), "0"))
				must(s.store.Reset(s.t.Context(), group, "0", topic.Incarnation, sluice.Position{Sequence: bounds.First - 1}, "set"))
				time.Sleep(time.Minute)
				if p := s.position("0"); p != bounds.Last.Sequence || len(s.rows()) != 1+int(bounds.Last.Sequence-bounds.First+1) {
					s.t.Errorf("went on to %d, %d rows", p, len(s.rows()))
				}
				end()
			})
		})
	}
}

// A commit whose answer is lost is looked up, not repeated.
func TestUnknownCommit(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied=%v", applied), func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.store.Faults = &unknown{applied: applied}
				s.send("0", "a", "b", "c")
				_, end := s.consume("a", sluice.Each(insert), sluice.Config{MaxBatch: 2})
				time.Sleep(time.Minute)
				if rows := s.rows(); !slices.Equal(rows, []int64{0, 1, 2}) {
					s.t.Errorf("rows %v", rows)
				}
				if s.count(driver.KindUnknown) == 0 {
					s.t.Error("no commit was unknown")
				}
				end()
			})
		})
	}
}

// unknown loses the answer of every other commit, or the commit with it.
type unknown struct {
	applied bool
	mu      sync.Mutex
	n       int
}

func (u *unknown) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (u *unknown) Commit(_ driver.Step, apply func() error) error {
	u.mu.Lock()
	u.n++
	lose := u.n%2 == 1
	u.mu.Unlock()
	if !lose {
		return apply()
	}
	if u.applied {
		if err := apply(); err != nil {
			return err
		}
	}
	return sluice.ErrUnknown
}
