package partition_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
	"github.com/sluice-go/sluice/stamp"
)

// bodies notes the bodies that took effect.
type bodies struct {
	mu   sync.Mutex
	list []string
}

func (l *bodies) add(e *sluice.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, string(e.Body))
}

func (l *bodies) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.list))
}

// refuses returns an error for an event to be rejected.
func refuses(e *sluice.Event) error {
	if strings.HasPrefix(string(e.Body), "reject") {
		return driver.Reject(errors.New(string(e.Body)))
	}
	return nil
}

// deliveries are Transactional and AtLeastOnce, which note what they have done. Redrives succeed if
// mended.
func (s *scene) deliveries(l *bodies, mended *bool) map[string]func() sluice.Delivery {
	return map[string]func() sluice.Delivery{
		"Transactional": func() sluice.Delivery {
			return sluice.Transactional(s.Store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				if err := refuses(e); err != nil && !*mended {
					return err
				}
				return tx.Insert("bodies", string(e.Body))
			}))
		},
		"AtLeastOnce": func() sluice.Delivery {
			w := enginetest.NewWarehouse(s.T)
			w.Says = func(e *sluice.Event, _ int) error {
				if err := refuses(e); err != nil && !*mended {
					return err
				}
				l.add(e)
				return nil
			}
			return sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil)
		},
	}
}

// effects returns the bodies that took effect under either delivery, sorted.
func (s *scene) effects(l *bodies) []string {
	all := l.sorted()
	for _, row := range s.Store.Rows("bodies") {
		all = append(all, row.(string))
	}
	slices.Sort(all)
	return all
}

// goOn sets the checkpoint after a loss from a number on, as the error asks for.
func (s *scene) goOn(end int64) {
	s.T.Helper()
	topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
	enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, driver.Position{Sequence: end - 1}, "set"))
}

// The dead letter of an event that the log has lost stands in nobody's way: the event that has its
// number now takes effect, or is a dead letter of its own, and the old one can be redriven.
func TestTruncatedDeadLetters(t *testing.T) {
	for _, name := range []string{"Transactional", "AtLeastOnce"} {
		for kind, limit := range map[string]int{"with bodies": 0, "without bodies": -1} {
			t.Run(name+" "+kind, func(t *testing.T) {
				sparse(t, func(s *scene) {
					t := s.T
					var l bodies
					mended := false
					delivery := s.deliveries(&l, &mended)[name]
					cfg := sluice.Config{BodyLimit: limit}
					s.SendSparse("a reject-b reject-c d")
					_, end := s.Run(s.Hub, delivery(), cfg)
					time.Sleep(time.Minute)
					s.Hub.Truncate("0", 1)
					s.SendSparse("B reject-C D")
					time.Sleep(time.Minute)
					s.wantTruncated(1, 3)
					s.goOn(1)
					time.Sleep(time.Minute)
					end()
					if got, want := s.effects(&l), []string{"B", "D", "a", "d"}; !slices.Equal(got, want) {
						t.Errorf("took effect: %q, want %q", got, want)
					}
					var errs []string
					for _, d := range s.Letters() {
						errs = append(errs, d.Error)
					}
					if want := []string{"reject-C", "reject-b", "reject-c"}; !slices.Equal(slices.Sorted(slices.Values(errs)), want) {
						t.Fatalf("dead letters %q, want %q", errs, want)
					}
					if got := s.failuresOf(); !slices.ContainsFunc(got, func(err error) bool {
						return errors.As(err, new(*driver.LostDeadLettersError))
					}) {
						t.Errorf("reported %v, want that the dead letters are of lost events", got)
					}
					mended = true
					s.RedriveAll()
					_, end = s.Run(s.Hub, delivery(), cfg)
					time.Sleep(time.Minute)
					end()
					want, left := []string{"B", "D", "a", "d", "reject-C", "reject-b", "reject-c"}, 0
					if limit < 0 {
						want, left = []string{"B", "D", "a", "d", "reject-C"}, 2
					}
					if got := s.effects(&l); !slices.Equal(got, want) || len(s.Letters()) != left {
						t.Errorf("after a redrive took effect: %q, want %q; dead letters left %+v, want %d", got, want, s.Letters(), left)
					}
					for _, d := range s.Letters() {
						if !strings.Contains(d.Error, "the log has lost it and has another event of this number") {
							t.Errorf("dead letter of event %d: %s", d.Event.Sequence, d.Error)
						}
					}
				})
			})
		}
	}
}

// failuresOf returns the errors of failures.
func (s *scene) failuresOf() (list []error) {
	for _, o := range s.Observations(driver.KindFailed) {
		list = append(list, o.Err)
	}
	return list
}

// The report of a loss after the checkpoint names a place to go on from that passes no event which
// is not done.
func TestTruncatedBehindTheCheckpoint(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a slow b c d")
		w := enginetest.NewWarehouse(t)
		w.HangsAt(1)
		_, end := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), sluice.Config{})
		time.Sleep(20 * time.Second)
		s.Hub.Truncate("0", 3)
		s.SendSparse("C D")
		time.Sleep(time.Minute)
		s.wantTruncated(3, 4)
		lost, _ := errors.AsType[*driver.TruncatedError](s.Observations(driver.KindHalted)[0].Err)
		if text := lost.Error(); lost.Before != 2 || !strings.Contains(text, "at sequence 1 (of the events from there to 2 some are not done yet)") {
			t.Errorf("%d before the end: %s", lost.Before, text)
		}
		w.Takes = nil
		s.goOn(lost.End - lost.Before)
		time.Sleep(2 * time.Minute)
		end()
		if got := slices.Compact(enginetest.Sorted(w.Rows())); !slices.Equal(got, []int64{0, 1, 2, 3, 4}) || w.Tries(1) != 2 || s.Position("0") != 4 {
			t.Errorf("events %v were written, %d attempts at event 1, and the checkpoint is at %d", got, w.Tries(1), s.Position("0"))
		}
	})
}

// A dead letter after the checkpoint counts as done at a restart, but not for another event that
// has its number. No operator is asked: the checkpoint does not know this event, which is of a
// later leader, as done, and it took no effect.
func TestTruncatedDeadLetterAtRestart(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("slow")
		s.Hub.Truncate("0", 1) // another leader, and nothing is lost
		s.SendSparse("reject")
		var l bodies
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if string(e.Body) == "slow" {
				return time.Hour
			}
			return time.Millisecond
		}
		w.Says = func(e *sluice.Event, _ int) error {
			if err := refuses(e); err != nil {
				return err
			}
			l.add(e)
			return nil
		}
		s.killed(w, nil)
		s.Hub.Truncate("0", 1)
		s.SendSparse("A B")
		w.Takes = nil
		for range 2 {
			s.finishes(w)
		}
		if got, want := l.sorted(), []string{"A", "B", "slow"}; !slices.Equal(got, want) || s.Position("0") != 2 {
			t.Errorf("written: %q, want %q, and the checkpoint is at %d", got, want, s.Position("0"))
		}
		if letters := s.Letters(); len(letters) != 1 || letters[0].Error != "reject" || len(s.Observations(driver.KindHalted)) != 0 {
			t.Errorf("dead letters %+v, halts %v", letters, s.Observations(driver.KindHalted))
		}
	})
}

// Messages of an event that the log has lost and of the one that has its number now have different
// causation ids, which the next stage must not take for duplicates. An id does not depend on where
// a reader began.
func TestTruncatedCausationIDs(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		ids := map[string]string{}
		var mu sync.Mutex
		fail := true
		records := func(ctx context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			stamp, _ := stamp.Of(ctx, e, 0)
			mu.Lock()
			defer mu.Unlock()
			body := string(e.Body)
			if id, known := ids[body]; known && id != stamp.ID.String() {
				t.Errorf("event %q has the causation ids %s and %s", body, id, stamp.ID)
			}
			ids[body] = stamp.ID.String()
			if err := refuses(e); err != nil && fail {
				return nil, err
			}
			return []*sluice.Event{e}, nil
		}
		begin := func() func() {
			_, stop := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, records, enginetest.NewWarehouse(t), nil), sluice.Config{})
			time.Sleep(time.Minute)
			return stop
		}
		s.SendSparse("a reject-b c")
		begin()()
		s.Hub.Truncate("0", 1)
		s.SendSparse("B C")
		stop := begin()
		s.goOn(1)
		time.Sleep(time.Minute)
		stop()
		s.goOn(0)
		fail = false
		s.RedriveAll()
		begin()()
		distinct := map[string]bool{}
		for _, id := range ids {
			distinct[id] = true
		}
		if len(ids) != 5 || len(distinct) != 5 || len(s.Letters()) != 0 {
			t.Errorf("causation ids %v, want five, all different; dead letters %+v, want none", ids, s.Letters())
		}
	})
}
