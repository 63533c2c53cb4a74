package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// desk handles events as a delivery hands them over, and notes what became of each.
type desk struct {
	handle func(ctx context.Context, e *sluice.Event) error

	mu    sync.Mutex
	calls int
	done  map[int64]int
	log   []driver.Attempt // of each call, where the delivery says it
}

func (d *desk) one(ctx context.Context, e *sluice.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.log = append(d.log, driver.AttemptOf(ctx))
	err := d.handle(ctx, e)
	if err == nil {
		d.done[e.Sequence]++
	}
	return err
}

func (d *desk) all(ctx context.Context, b sluice.Batch) error {
	for i, e := range b.Events {
		if err := d.one(ctx, e); err != nil {
			return &driver.EventError{Index: i, Err: err}
		}
	}
	return nil
}

// doneOf returns how many events are done.
func (d *desk) doneOf() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.done)
}

// withEachDelivery runs a test with each delivery to a desk, in a scene of its own where failed
// events are tried again later.
func withEachDelivery(t *testing.T, test func(s *scene, delivery sluice.Delivery, d *desk)) {
	for name, make := range map[string]func(s *scene, d *desk) sluice.Delivery{
		"transactional": func(s *scene, d *desk) sluice.Delivery {
			return sluice.Transactional(s.Store, func(ctx context.Context, _ *sluicetest.Tx, b sluice.Batch) error { return d.all(ctx, b) })
		},
		"batches": func(s *scene, d *desk) sluice.Delivery { return sluice.Batches(s.Store, d.all, nil) },
		"at least once": func(s *scene, d *desk) sluice.Delivery {
			w := enginetest.NewWarehouse(s.T)
			w.Says = func(e *sluice.Event, _ int) error { return d.one(context.Background(), e) }
			return sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.RetryLater = true
				d := &desk{done: map[int64]int{}}
				test(s, make(s, d), d)
			})
		})
	}
}

// An outage of an API whose client says no more than "failed" leaves no dead letter that waits for
// an operator, whatever the rate of the events.
func TestOutageWithoutAMark(t *testing.T) {
	for _, outage := range []time.Duration{3 * time.Second, 30 * time.Second, 300 * time.Second} {
		for _, every := range []time.Duration{10 * time.Second, 500 * time.Millisecond, 5 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v down, an event in %v", outage, every), func(t *testing.T) {
				withEachDelivery(t, func(s *scene, delivery sluice.Delivery, d *desk) {
					from := time.Now().Add(time.Minute)
					to := from.Add(outage)
					failed := 0
					d.handle = func(context.Context, *sluice.Event) error {
						if now := time.Now(); now.After(from) && now.Before(to) {
							failed++
							return errors.New("failed")
						}
						return nil
					}
					_, stop := s.Run(s.Hub, delivery, sluice.Config{})
					sent, step := 0, max(every, 50*time.Millisecond)
					for time.Now().Before(to.Add(time.Second)) {
						n := int(step / every)
						s.Send("0", slices.Repeat([]string{"good"}, n)...)
						sent += n
						time.Sleep(step)
					}
					behind := sent - d.doneOf()
					for time.Since(to) < 20*time.Minute && d.doneOf() < sent {
						time.Sleep(time.Second)
					}
					caught := time.Since(to)
					stop()
					if letters := len(s.Letters()); letters > 0 || d.doneOf() != sent {
						t.Errorf("%d dead letters, of which %d wait for an operator; %d of %d events done", letters, len(s.Letters(sluice.StatusDead)), d.doneOf(), sent)
					}
					s.T.Logf("%d events, %d behind, %d set aside, %d calls failed; all done %v after the outage",
						sent, behind, s.Count(driver.KindParked), failed, caught.Round(time.Second))
				})
			})
		}
	}
}

// An event that always fails is tried in each way that it can be, and then waits for an operator.
// The others go on.
func TestRetryLater(t *testing.T) {
	withEachDelivery(t, func(s *scene, delivery sluice.Delivery, d *desk) {
		var tried []time.Duration
		began := time.Now()
		d.handle = func(ctx context.Context, e *sluice.Event) error {
			if e.Sequence != 1 {
				return nil
			}
			tried = append(tried, time.Since(began))
			return errors.New("failed")
		}
		var copied []driver.DeadLetter
		_, stop := s.Run(s.Hub, delivery, sluice.Config{
			RetryLater: []time.Duration{20 * time.Second, 5 * time.Minute},
			CopyDeadLetters: func(_ context.Context, dead []driver.DeadLetter) error {
				copied = append(copied, dead...)
				return nil
			},
		})
		s.Send("0", "good", "poison", "good")
		time.Sleep(10 * time.Second)
		early := s.Letters(sluice.StatusRetry)
		if len(early) != 1 || early[0].Attempts != 3 || d.doneOf() != 2 {
			t.Fatalf("after 10 s: %+v set aside, %d events done; want event 1 after 3 attempts, and 2", early, d.doneOf())
		}
		time.Sleep(10 * time.Minute)
		stop()
		dead := s.Letters()
		if len(dead) != 1 || dead[0].Status != sluice.StatusDead || dead[0].Attempts != 5 || !dead[0].NextAttempt.IsZero() {
			t.Errorf("dead letters %+v, want one that waits for an operator after 5 attempts", dead)
		}
		if len(copied) != 1 || copied[0].Status != driver.StatusDead {
			t.Errorf("copied were %+v, want it once, when no attempt follows", copied)
		}
		for i, want := range []time.Duration{20 * time.Second, 5*time.Minute + 20*time.Second} {
			if got := tried[len(tried)-2+i]; got < want || got > want+5*time.Second {
				t.Errorf("attempts after %v; want the last two after 20 s and 5 min 20 s", tried)
			}
		}
		var retried []bool
		for _, o := range s.Observations(driver.KindParked, driver.KindRedriveFailed) {
			retried = append(retried, o.RetriedIn > 0)
		}
		if !slices.Equal(retried, []bool{true, true, false}) {
			t.Errorf("observations say of another attempt: %v", retried)
		}
	})
}

// A rejected event is never tried again by itself.
func TestRejectedIsNotRetriedLater(t *testing.T) {
	withEachDelivery(t, func(s *scene, delivery sluice.Delivery, d *desk) {
		d.handle = func(context.Context, *sluice.Event) error { return driver.Reject(errors.New("no")) }
		_, stop := s.Run(s.Hub, delivery, sluice.Config{})
		s.Send("0", "bad")
		time.Sleep(time.Hour)
		stop()
		if len(s.Letters(sluice.StatusDead)) != 1 || d.calls != 1 {
			t.Errorf("dead letters %+v after %d calls", s.Letters(), d.calls)
		}
	})
}

// A handler defers an event for as long as it likes, over restarts, while the others go on.
func TestDefer(t *testing.T) {
	withEachDelivery(t, func(s *scene, delivery sluice.Delivery, d *desk) {
		began := time.Now()
		d.handle = func(_ context.Context, e *sluice.Event) error {
			if e.Sequence == 0 && time.Since(began) < 30*time.Minute {
				return driver.Defer(errors.New("not yet"), 4*time.Minute)
			}
			return nil
		}
		s.Send("0", "early", "good", "good")
		for range 4 {
			_, stop := s.Run(s.Hub, delivery, sluice.Config{RetryLater: []time.Duration{}})
			time.Sleep(9 * time.Minute)
			if n := d.doneOf(); n < 2 {
				t.Fatalf("%d events done: they wait for the deferred one", n)
			}
			stop()
		}
		if d.doneOf() != 3 || len(s.Letters()) > 0 || d.calls > 12 || s.Count(driver.KindRetried) > 0 {
			t.Errorf("%d done, %d dead letters, %d calls, %d retries", d.doneOf(), len(s.Letters()), d.calls, s.Count(driver.KindRetried))
		}
	})
}

// A handler knows which attempt it makes.
func TestAttemptOf(t *testing.T) {
	stage(t, 1, func(s *scene) {
		d := &desk{done: map[int64]int{}, handle: func(context.Context, *sluice.Event) error { return errors.New("failed") }}
		_, stop := s.Run(s.Hub, sluice.Batches(s.Store, d.all, nil), sluice.Config{Attempts: 2, RetryLater: []time.Duration{time.Minute, time.Minute}})
		s.Send("0", "bad")
		time.Sleep(5 * time.Minute)
		stop()
		want := []driver.Attempt{{Number: 1}, {Number: 2}, {Number: 3, Redriven: true}, {Number: 4, Redriven: true, Last: true}}
		got := slices.CompactFunc(d.log, func(a, b driver.Attempt) bool { return a.Number == b.Number })
		for i := range want {
			want[i].Group = enginetest.Group
		}
		if !slices.Equal(got, want) {
			t.Errorf("attempts %+v, want %+v", got, want)
		}
	})
}

// Under KeyHold the events of a key wait for an earlier one as long as it is there, whatever it
// waits for, and are tried after it without an operator.
func TestHeldBackWaits(t *testing.T) {
	for name, c := range map[string]struct {
		failure func(at time.Duration) error // of the first event
		redrive time.Duration                // when an operator redrives it
	}{
		"deferred for long": {func(at time.Duration) error {
			if at < 40*time.Minute {
				return driver.Defer(errors.New("not yet"), 40*time.Minute)
			}
			return nil
		}, 0},
		"rejected, and redriven by an operator": {func(at time.Duration) error {
			if at < time.Hour {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.RetryLater = true
				began := time.Now()
				w := enginetest.NewWarehouse(s.T)
				w.Says = func(e *sluice.Event, _ int) error {
					if e.Sequence == 0 {
						return c.failure(time.Since(began))
					}
					return nil
				}
				_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}, sluice.Config{})
				s.SendKeyed("0", 4, func(int) string { return "k" })
				time.Sleep(30 * time.Minute)
				held := s.Letters(sluice.StatusRetry)
				for _, d := range held {
					if d.Event.Sequence > 0 && d.Attempts != 0 {
						t.Errorf("event %d waits for an earlier one, and has %d attempts", d.Event.Sequence, d.Attempts)
					}
				}
				if looks := s.Count(driver.KindRedriveFailed); len(held) < 3 || looks > 3*12 {
					t.Errorf("%d events wait, looked at %d times", len(held), looks)
				}
				if c.redrive > 0 {
					time.Sleep(c.redrive - time.Since(began))
					s.RedriveAll()
				}
				time.Sleep(time.Hour)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if rows := w.Rows(); len(s.Letters()) > 0 || !slices.Equal(rows, []int64{0, 1, 2, 3}) {
					t.Errorf("written in the order %v, dead letters %+v", rows, s.Letters())
				}
			})
		})
	}
}
