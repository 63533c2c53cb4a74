package batch_test

import (
	"context"
	"errors"
	"fmt"
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

// exactly checks that n events, from the first on, have one row each.
func (s *scene) exactly(n int) {
	s.T.Helper()
	rows := s.Rows()
	slices.Sort(rows)
	if len(rows) != n || len(slices.Compact(rows)) != n {
		s.T.Errorf("%d rows for %d events: %v", len(rows), n, rows)
	}
}

func TestOwnerRedrives(t *testing.T) {
	for name, limit := range map[string]int{"stored body": 0, "body read from the log": -1} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				cfg := sluice.Config{BodyLimit: limit}
				s.LeaveDeadLetters(cfg)
				_, end := s.Consume("a", enginetest.InsertRedriven, cfg)
				for n := range 120 {
					if n == 60 {
						s.RedriveAll()
					}
					s.Send("0", "good")
					time.Sleep(time.Second)
				}
				end()
				if n := len(s.Letters()); n != 0 {
					s.T.Errorf("%d dead letters are left", n)
				}
				s.exactly(150)
				if n := s.Count(driver.KindRedriven); n != 10 {
					s.T.Errorf("%d redrives observed, want 10", n)
				}
			})
		})
	}
}

func TestCommandsRedriveWhatNobodyOwns(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		s.Hub.Trim("0", 30) // retention has passed: the bodies are stored
		s.RedriveAll()
		var wg sync.WaitGroup
		var mu sync.Mutex
		total := 0
		for n := range 3 {
			wg.Go(func() {
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), &sluice.Config{Owner: fmt.Sprint("command", n)}))
				applied, failed, err := c.Redrive(s.T.Context())
				if err != nil || failed != 0 {
					s.T.Error(failed, err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += applied
			})
		}
		wg.Wait()
		if total != 10 || len(s.Letters()) != 0 {
			s.T.Errorf("applied %d, %d are left", total, len(s.Letters()))
		}
		s.exactly(30)
		if n := s.Leases.Holders(s.T); len(n) != 0 {
			s.T.Errorf("leases are still held: %v", n)
		}
	})
}

// A consumer that does not run, any more perhaps, redrives what was marked since its last Redrive.
func TestRedriveTwice(t *testing.T) {
	for _, ran := range []bool{false, true} {
		stage(t, 2, func(s *scene) {
			for _, partition := range []string{"0", "1"} {
				s.Send(partition, "good", "reject")
				_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
				time.Sleep(time.Minute)
				end()
			}
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), &sluice.Config{RedriveEvery: time.Hour}))
			if ran {
				ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
				if err := c.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					s.T.Fatal(err)
				}
				cancel()
			}
			for _, partition := range []string{"0", "1"} {
				enginetest.Must(s.Store.Redrive(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{Partition: partition}, time.Time{}))
				if applied, failed, err := c.Redrive(s.T.Context()); applied != 1 || failed != 0 || err != nil {
					s.T.Errorf("partition %s: applied %d, %d failed, %v: want 1", partition, applied, failed, err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

func TestRedriveLeavesOwnedPartitionsAlone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{RedriveEvery: time.Hour})
		time.Sleep(10 * time.Second)
		s.RedriveAll()
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), nil))
		if applied, failed, err := c.Redrive(s.T.Context()); applied+failed != 0 || err != nil {
			s.T.Error(applied, failed, err)
		}
		time.Sleep(time.Hour)
		end()
		s.exactly(30)
	})
}

func TestRetryFailsAgain(t *testing.T) {
	stage(t, 1, func(s *scene) {
		cfg := sluice.Config{BodyLimit: -1}
		s.LeaveDeadLetters(cfg)
		s.Hub.Trim("0", 15) // five are gone, and their bodies were not stored
		s.Send("0", "good")
		_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			for i, e := range b.Events {
				if b.Redriven && e.Sequence == 27 {
					if err := tx.Insert("rows", int64(27)); err != nil {
						return err
					}
					return &driver.EventError{Index: i, Err: errors.New("no better than before")}
				}
			}
			return enginetest.InsertRedriven(ctx, tx, b)
		}, cfg)
		time.Sleep(time.Minute)
		s.RedriveAll()
		time.Sleep(time.Minute)
		end()
		letters := s.Letters(sluice.StatusDead)
		if len(letters) != 6 || len(s.Letters()) != 6 {
			s.T.Fatalf("%d dead letters, %d in all", len(letters), len(s.Letters()))
		}
		for _, l := range letters {
			want := "retention removed"
			if l.Event.Sequence == 27 {
				want = "no better"
			}
			if l.Attempts != 2 || !strings.Contains(l.Error, want) {
				s.T.Errorf("event %d: %d attempts, %s", l.Event.Sequence, l.Attempts, l.Error)
			}
		}
		s.exactly(31 - 6)
	})
}

// A retry that kills the process comes to an end.
func TestRetryThatKills(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		enginetest.Must(s.Store.Redrive(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{IDs: []int64{s.Letters()[4].ID}}, time.Time{}))
		deaths := 0
		for life := range 10 {
			s.Send("0", "good")
			owner, dead := fmt.Sprint("life", life), make(chan struct{})
			h := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				if b.Redriven {
					s.Leases.CutOff(owner)
					close(dead)
					<-ctx.Done()
					return ctx.Err()
				}
				return enginetest.InsertRedriven(ctx, tx, b)
			}
			c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(&mortal{Store: s.Store, dead: dead}, h), &sluice.Config{Partitions: 1, Owner: owner}))
			ctx, cancel := context.WithCancel(s.T.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = c.Run(ctx) }()
			select {
			case <-dead:
				deaths++
			case <-time.After(2 * time.Minute):
			}
			cancel()
			<-done
		}
		if deaths != 3 || len(s.Letters(sluice.StatusDead)) != 10 {
			s.T.Errorf("%d deaths, %d dead letters", deaths, len(s.Letters(sluice.StatusDead)))
		}
		s.exactly(30)
	})
}

// A redrive that kills the process comes to an end also where an event has attempts on
// record, or another dead letter is postponed again and again.
func TestRedriveThatKillsBesideOthers(t *testing.T) {
	for _, beside := range []string{"event with attempts", "dead letter that is postponed"} {
		t.Run(beside, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.LeaveDeadLetters(sluice.Config{})
				postponed, killer := s.Letters()[3], s.Letters()[4]
				ids := []int64{killer.ID}
				if beside == "event with attempts" {
					s.Send("0", "bad")
					_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
					time.Sleep(time.Minute)
					end()
				} else {
					ids = append(ids, postponed.ID)
				}
				enginetest.Must(s.Store.Redrive(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{IDs: ids}, time.Time{}))
				h := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					if b.Redriven {
						return driver.RetryAfter(errors.New("not yet"), time.Second)
					}
					return enginetest.InsertRedriven(ctx, tx, b)
				}
				deaths := 0
				for n := range 10 {
					if s.lifeWith(n, h, func(b sluice.Batch) bool { return b.Redriven && enginetest.Has(b, killer.Event.Sequence) }) {
						deaths++
					}
				}
				if letter := enginetest.Must(s.Store.Get(s.T.Context(), enginetest.Group, killer.ID)); deaths != 3 || letter.Status != sluice.StatusDead {
					s.T.Errorf("%d deaths, the dead letter is %+v", deaths, letter)
				}
			})
		})
	}
}

// A command retries while the event behind the checkpoint has attempts on
// record: it neither waits for that event nor loses count.
func TestRedriveBesideAnEventUnderTrial(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		s.Send("0", "bad")
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{RetryMin: time.Hour, RetryMax: time.Hour})
		time.Sleep(time.Minute)
		end()
		s.RedriveAll()
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), &sluice.Config{Partitions: 1}))
		if applied, failed, err := c.Redrive(s.T.Context()); applied != 10 || failed != 0 || err != nil {
			s.T.Errorf("applied %d, failed %d, %v", applied, failed, err)
		}
		if p := enginetest.Must(s.Store.Read(s.T.Context(), enginetest.Group))[0]; p.Attempt.Sequence != 30 || p.Attempt.Attempts != 1 {
			s.T.Errorf("the record of event 30 is %+v", p.Attempt)
		}
	})
}

// counted is a context that counts the functions that wait for its end.
type counted struct {
	context.Context
	waiting atomic.Int64
}

// Value hides the context within, where package context would register otherwise.
func (c *counted) Value(any) any { return nil }

// AfterFunc is what package context calls to register one.
func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	detach := context.AfterFunc(c.Context, f)
	return func() bool {
		c.waiting.Add(-1)
		return detach()
	}
}

// A program that redrives again and again under one context keeps nothing there.
func TestRedriveLeavesNothingWithItsContext(t *testing.T) {
	ctx := &counted{Context: t.Context()}
	c := enginetest.Must(sluice.New(sluicetest.NewHub(enginetest.Group, 2), enginetest.NewLedger(), sluice.Transactional(&sluicetest.Store{}, enginetest.Nothing), nil))
	for range 10 {
		if _, _, err := c.Redrive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := ctx.waiting.Load(); n != 0 {
		t.Errorf("%d functions wait for the context's end after 10 redrives", n)
	}
}

// lateness is how long events wait until they are handled.
func (s *scene) lateness(during time.Duration, cfg sluice.Config, h sluice.Handler[*sluicetest.Tx]) (worst time.Duration) {
	var mu sync.Mutex
	sent := map[int64]time.Time{}
	_, end := s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
		if err := h(ctx, tx, b); err != nil || b.Redriven {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range b.Events {
			worst = max(worst, time.Since(sent[e.Sequence]))
		}
		return nil
	}, cfg)
	next := s.Position("0") + 1
	for range int(during / time.Second) {
		mu.Lock()
		sent[next] = time.Now()
		mu.Unlock()
		next++
		s.Send("0", "good")
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute)
	end()
	if at := s.Position("0"); at != next-1 {
		s.T.Errorf("the checkpoint is at %d, want %d", at, next-1)
	}
	return worst
}

// One dead letter whose redrive always meets an outage does not keep the others from theirs.
func TestRedriveThatAlwaysTimesOut(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{})
		s.RedriveAll()
		first := s.Letters()[0].ID
		s.Store.Faults = &refused{func(step driver.Step) error {
			if slices.Contains(step.Redriven, first) {
				return errors.New("no answer")
			}
			return nil
		}}
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(5 * time.Minute)
		end()
		if letters := s.Letters(); len(letters) != 1 || letters[0].ID != first || letters[0].Status != sluice.StatusRetry {
			s.T.Errorf("left are %+v", letters)
		}
	})
}

// After a checkpoint was set back, an event that takes effect has no dead letter any
// more, so that no redrive repeats it.
func TestSetBackSettlesDeadLetters(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(s *scene)
	}{
		{"left alone", func(*scene) {}},
		{"on redrive", (*scene).RedriveAll},
		{"discarded", func(s *scene) {
			enginetest.Must(s.Store.Discard(s.T.Context(), enginetest.Group, sluice.DeadLetterFilter{}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "reject", "reject", "bad", "reject")
				_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				c.prepare(s)
				topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
				enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 0}, "set"))
				// Event 0 is before the checkpoint, event 3 fails again.
				_, end = s.Consume("a", func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					for _, e := range b.Events {
						if e.Sequence == 3 && !b.Redriven {
							return &driver.EventError{Index: slices.Index(b.Events, e), Err: driver.Reject(errors.New("still wrong"))}
						}
						if err := tx.Insert("rows", e.Sequence); err != nil {
							return err
						}
					}
					return nil
				}, sluice.Config{})
				time.Sleep(time.Minute)
				if letters := s.Letters(sluice.StatusDead); c.name == "left alone" && (len(letters) != 2 || letters[0].Event.Sequence != 0 || letters[1].Event.Sequence != 3) {
					s.T.Errorf("dead letters %+v, want those of events 0 and 3", letters)
				}
				s.RedriveAll()
				time.Sleep(time.Minute)
				end()
				rows := s.Rows()
				slices.Sort(rows)
				if !slices.Equal(rows, []int64{0, 1, 2, 3}) || len(s.Letters()) != 0 {
					s.T.Errorf("rows %v, dead letters %+v; want each event once", rows, s.Letters())
				}
			})
		})
	}
}

// A command leaves the dead letters of events after the checkpoint alone, and says so.
func TestCommandLeavesEventsToTheConsumer(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "reject", "reject", "reject")
		_, end := s.Consume("before", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.RedriveAll()
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 0}, "set"))
		lease := enginetest.Must(s.Leases.Acquire(s.T.Context(), enginetest.Group, "0", "the command that set it back", time.Minute, 0))
		if err := s.Leases.Release(s.T.Context(), lease); err != nil {
			s.T.Fatal(err)
		}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), &sluice.Config{Observer: s}))
		if applied, failed, err := c.Redrive(s.T.Context()); applied != 1 || failed != 0 || err != nil {
			s.T.Errorf("applied %d, failed %d, %v; want event 0 alone", applied, failed, err)
		}
		if s.Count(driver.KindFailed) != 1 {
			s.T.Errorf("%d reports, want one", s.Count(driver.KindFailed))
		}
		_, end = s.Consume("after", enginetest.InsertBatch, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		if letters := s.Letters(sluice.StatusDead); len(letters) != 2 {
			s.T.Errorf("dead letters %+v, want those of events 1 and 2, which failed again", letters)
		}
	})
}

// recreatedAtOpen is a log whose topic is recreated without its partitions before the next
// reader opens.
type recreatedAtOpen struct {
	*sluicetest.Hub
	gone bool
}

func (r *recreatedAtOpen) Open(context.Context, string, sluice.Position, int64) (driver.Reader, error) {
	if !r.gone {
		r.gone = true
		r.Recreate()
	}
	return nil, fmt.Errorf("no such partition: %w", sluice.ErrRefused)
}

// A command must end when the partition of its dead letters is gone.
func TestCommandEndsWhenThePartitionIsGone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{BodyLimit: -1})
		s.RedriveAll()
		c := enginetest.Must(sluice.New(&recreatedAtOpen{Hub: s.Hub}, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), nil))
		ctx, cancel := context.WithTimeout(s.T.Context(), 10*time.Minute)
		defer cancel()
		if applied, failed, err := c.Redrive(ctx); applied != 0 || failed != 10 || err != nil {
			s.T.Errorf("applied %d, failed %d, %v; want 10 that failed", applied, failed, err)
		}
		letters := s.Letters(sluice.StatusDead)
		if len(letters) != 10 || !strings.Contains(letters[0].Error, "recreated") {
			s.T.Errorf("dead letters %+v, want 10 that name the recreation", letters)
		}
	})
}

// downLog is a log that opens no reader until the time it is up again.
type downLog struct {
	*sluicetest.Hub
	end   time.Time
	opens int
}

func (d *downLog) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	if d.opens++; time.Now().Before(d.end) {
		return nil, errors.New("no connection")
	}
	return d.Hub.Open(ctx, partition, after, epoch)
}

// A command that waits for the log must not ask it twenty times a second.
func TestCommandWaitsLongerForTheLog(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.LeaveDeadLetters(sluice.Config{BodyLimit: -1})
		s.RedriveAll()
		down := &downLog{Hub: s.Hub, end: time.Now().Add(10 * time.Minute)}
		c := enginetest.Must(sluice.New(down, s.Leases, sluice.Transactional(s.Store, enginetest.InsertRedriven), nil))
		if applied, failed, err := c.Redrive(s.T.Context()); applied != 10 || failed != 0 || err != nil {
			s.T.Errorf("applied %d, failed %d, %v; want 10 applied", applied, failed, err)
		}
		if down.opens > 100 {
			s.T.Errorf("%d readers opened within 10 minutes, want at most 100", down.opens)
		}
	})
}

// A step also settles the dead letters of events that AtLeastOnce had parked after its checkpoint.
func TestTransactionalAfterAtLeastOnceSettlesDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "good", "good", "good")
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, driver.Origin, "set"))
		letter := sluice.DeadLetter{Group: enginetest.Group, Incarnation: topic.Incarnation, Status: sluice.StatusDead, HasBody: true,
			Event: sluice.Event{Partition: "0", Sequence: 1, Body: []byte("good")}}
		if err := s.Store.Park(s.T.Context(), []sluice.DeadLetter{letter}); err != nil {
			s.T.Fatal(err)
		}
		s.RedriveAll()
		_, end := s.Consume("a", enginetest.InsertRedriven, sluice.Config{})
		time.Sleep(time.Minute)
		end()
		s.exactly(3)
		if len(s.Letters()) != 0 {
			s.T.Errorf("dead letters %+v", s.Letters())
		}
	})
}

// Where a redrive's handler reports an outage, or asks for another attempt later, the dead
// letter waits, and neither the partition nor the other dead letters do. Nothing counts.
func TestRedriveIsPostponed(t *testing.T) {
	for name, failure := range map[string]error{
		"outage": driver.Outage(errors.New("service is down")),
		"later":  driver.RetryAfter(errors.New("not yet"), time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.LeaveDeadLetters(sluice.Config{})
				s.RedriveAll()
				first, until := s.Letters()[0], time.Now().Add(30*time.Minute)
				worst := s.lateness(2*time.Minute, sluice.Config{}, func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					if b.Redriven && enginetest.Has(b, first.Event.Sequence) && time.Now().Before(until) {
						return &driver.EventError{Err: failure}
					}
					return enginetest.InsertRedriven(ctx, tx, b)
				})
				if worst > 2*time.Second {
					s.T.Errorf("an event waited for %v", worst)
				}
				letters := s.Letters()
				if len(letters) != 1 || letters[0].ID != first.ID || letters[0].Status != sluice.StatusRetry || letters[0].Attempts != first.Attempts {
					s.T.Fatalf("left are %+v, want the first, on redrive", letters)
				}
				if wait := time.Until(letters[0].NextAttempt); (wait > 30*time.Minute) != (name == "later") {
					s.T.Errorf("its next attempt is in %v", wait)
				}
				time.Sleep(time.Hour)
				_, end := s.Consume("b", enginetest.InsertRedriven, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				if letters := s.Letters(); len(letters) != 0 {
					s.T.Errorf("left are %+v", letters)
				}
			})
		})
	}
}
