package partition_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// TestHangingHandler: a handler that does not return is reported after LeaseFor, again
// at doubling intervals, and its end is reported too.
func TestHangingHandler(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two", "three")
		release := make(chan struct{})
		hooked := 0
		_, end := s.Consume("a", func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			<-release
			return nil
		}, sluice.Config{Hooks: sluice.Hooks{Error: func(context.Context, sluice.Lease, error) error { hooked++; return nil }}})
		time.Sleep(29 * time.Second)
		if got := s.Stalls(); len(got) != 0 {
			s.T.Errorf("stalls before LeaseFor: %q", got)
		}
		time.Sleep(3 * time.Second)
		const want = "handler has not returned for 30s: batch of 3 events from 0; look for a lock or a call without a time limit"
		if got := s.Stalls(); len(got) != 1 || got[0] != want {
			s.T.Errorf("stalls %q, want %q", got, want)
		}
		o := s.Observations(driver.KindStalled)[0]
		if o.Partition != "0" || o.Epoch != 1 || o.To.Sequence != 0 || o.Events != 3 || o.Duration.Round(time.Second) != 30*time.Second {
			s.T.Errorf("stall %+v", o)
		}
		time.Sleep(5*time.Minute - 32*time.Second)
		if got := s.Stalls(); len(got) != 4 { // after 30 s, 1, 2 and 4 min
			s.T.Errorf("%d stalls in five minutes: %q", len(got), got)
		}
		if hooked != 4 {
			s.T.Errorf("the hook Error was called %d times, want 4", hooked)
		}
		close(release)
		time.Sleep(2 * time.Second)
		if got := s.Observations(driver.KindResumed); len(got) != 1 || got[0].Duration < 4*time.Minute+58*time.Second {
			s.T.Errorf("resumed %+v", got)
		}
		end()
	})
}

// TestStopReportsWhatItWaitsFor: a stop waits for a handler that hangs, and reports
// that after a few seconds.
func TestStopReportsWhatItWaitsFor(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one")
		release := make(chan struct{})
		c, end := s.Consume("a", func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			<-release
			return nil
		}, sluice.Config{})
		time.Sleep(10 * time.Second)
		stopped := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(s.T.Context(), 8*time.Second)
			defer cancel()
			stopped <- c.Stop(ctx)
		}()
		time.Sleep(7500 * time.Millisecond)
		if got := s.Stalls(); len(got) != 1 || !strings.Contains(got[0], "handler has not returned for ") || !strings.Contains(got[0], "the consumer waits for it to stop") {
			s.T.Errorf("stalls %q", got)
		}
		err := <-stopped
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "partition 0: handler has not returned") {
			s.T.Errorf("Stop returned %v", err)
		}
		close(release)
		synctest.Wait()
		end()
	})
}

// TestLogThatDoesNotSayItsEnd: while the log does not answer for its end, events are
// delivered, and that the lag is unknown is reported.
func TestLogThatDoesNotSayItsEnd(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one")
		_, stop := s.Run(boundless{s.Hub}, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
		time.Sleep(50 * time.Second)
		failed := s.Observations(driver.KindFailed)
		if len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), "get the partition's end, for the lag: ") || len(s.Rows()) != 1 {
			s.T.Errorf("rows %v, failures %v", s.Rows(), failed)
		}
		stop()
	})
}

// boundless is a log that does not say where a partition ends.
type boundless struct{ *sluicetest.Hub }

func (boundless) Bounds(ctx context.Context, _ string) (driver.Bounds, error) {
	<-ctx.Done()
	return driver.Bounds{}, ctx.Err()
}

// TestSilentReader: a reader that returns nothing although the log holds more events
// is reported and replaced.
func TestSilentReader(t *testing.T) {
	for name, delivery := range map[string]func(s *scene) func(){
		"transactional": func(s *scene) func() {
			_, end := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
			return end
		},
		"at least once": func(s *scene) func() {
			_, end := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, enginetest.NewWarehouse(s.T), nil), sluice.Config{})
			return end
		},
		"replay": func(s *scene) func() {
			apply := func(context.Context, sluice.Batch) error { return nil }
			_, end := s.Run(s.Hub, sluice.Replay(sluice.Replayer{Apply: apply}), sluice.Config{})
			return end
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "one")
				end := delivery(s)
				time.Sleep(10 * time.Second)
				s.Hub.Silence("0")
				time.Sleep(5 * time.Minute) // no event comes: nothing is wrong
				if n := s.Count(driver.KindOpened); n != 1 {
					s.T.Errorf("opened %d times while the log held nothing more, want 1", n)
				}
				s.Send("0", "two", "three")
				time.Sleep(19 * time.Second)
				if n := s.Count(driver.KindOpened); n != 1 {
					s.T.Errorf("opened %d times before SilentAfter, want 1", n)
				}
				time.Sleep(11 * time.Second) // LeaseFor is over
				failed := s.Observations(driver.KindFailed)
				var silent *driver.SilentReaderError
				if len(failed) != 1 || !errors.As(failed[0].Err, &silent) || silent.Read != 0 || silent.Last != 2 {
					s.T.Errorf("failures %v, want one of a silent reader", failed)
				}
				if last := s.Observations(driver.KindFetched); len(last) == 0 || last[len(last)-1].To.Sequence != 2 {
					s.T.Errorf("fetched %+v, want events up to 2", last)
				}
				time.Sleep(time.Minute)
				if n := s.Count(driver.KindOpened); n != 2 {
					s.T.Errorf("opened %d times, want 2", n)
				}
				end()
			})
		})
	}
}

// exit ends the goroutine of its caller if the body says so, as t.FailNow does.
func exit(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
	if strings.HasPrefix(string(e.Body), "exit") {
		runtime.Goexit()
	}
	return tx.Insert("rows", e.Sequence)
}

// TestHandlerEndsItsGoroutine: runtime.Goexit in a handler is that event's own failure.
func TestHandlerEndsItsGoroutine(t *testing.T) {
	for name, h := range map[string]sluice.Handler[*sluicetest.Tx]{
		"each": sluice.Each(exit),
		"typed": sluice.TypedBy(func(e *sluice.Event) (string, error) { return string(e.Body), nil }, func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event, _ string) error {
			return exit(ctx, tx, e)
		}),
		"whole": func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			for _, e := range b.Events {
				if err := exit(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "one", "two", "exit", "four")
				_, end := s.Consume("a", h, sluice.Config{})
				time.Sleep(time.Minute)
				end()
				if rows := s.Rows(); !slices.Equal(rows, []int64{0, 1, 3}) {
					s.T.Errorf("rows %v, want 0, 1 and 3", rows)
				}
				letters := s.Letters()
				if len(letters) != 1 || letters[0].Event.Sequence != 2 || !strings.Contains(letters[0].Error, "handler ended its goroutine (runtime.Goexit)") {
					s.T.Errorf("dead letters %+v, want event 2, with the cause", letters)
				}
				if n := s.Count(driver.KindAcquired); n != 1 {
					s.T.Errorf("the partition was acquired %d times, want once", n)
				}
			})
		})
	}
}

// TestHooksEndTheirGoroutine: runtime.Goexit in a hook is observed and changes nothing.
func TestHooksEndTheirGoroutine(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one")
		end := func() error { runtime.Goexit(); return nil }
		_, stop := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{Hooks: sluice.Hooks{
			Assigned: func(context.Context, sluice.Lease, sluice.Checkpoint) error { return end() },
			Batch:    func(context.Context, sluice.Batch) error { return end() },
			Renewed:  func(context.Context, sluice.Lease) error { return end() },
			Released: func(context.Context, sluice.Lease, error) error { return end() },
		}})
		time.Sleep(15 * time.Second)
		stop()
		if rows := s.Rows(); len(rows) != 1 {
			s.T.Errorf("rows %v, want one", rows)
		}
		var failed []string
		for _, o := range s.Observations(driver.KindHookFailed) {
			failed = append(failed, o.Err.Error())
		}
		const want = " hook: function ended its goroutine (runtime.Goexit): it must return, with an error if it failed"
		if !slices.Equal(failed, []string{"assigned" + want, "batch" + want, "renewed" + want, "released" + want}) {
			s.T.Errorf("failed hooks %q", failed)
		}
	})
}

// TestReplayerEndsItsGoroutine: runtime.Goexit in a Replayer's function is its error.
func TestReplayerEndsItsGoroutine(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two")
		calls := 0
		_, stop := s.Run(s.Hub, sluice.Replay(sluice.Replayer{Apply: func(context.Context, sluice.Batch) error {
			if calls++; calls == 1 {
				runtime.Goexit()
			}
			return nil
		}}), sluice.Config{})
		time.Sleep(10 * time.Second)
		if failed := s.Observations(driver.KindFailed); len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), "apply: function ended its goroutine (runtime.Goexit)") {
			s.T.Errorf("failures %v", failed)
		}
		if committed := s.Observations(driver.KindCommitted); len(committed) != 1 || committed[0].Events != 2 {
			s.T.Errorf("committed %v, want both events", committed)
		}
		stop()
	})
}

// exiting is a log whose readers end the goroutine that opens them, once.
type exiting struct {
	*sluicetest.Hub
	exited bool
}

func (x *exiting) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	if !x.exited {
		x.exited = true
		runtime.Goexit()
	}
	return x.Hub.Open(ctx, partition, after, epoch)
}

// TestDeliveryThatIsEndedReleasesItsLease: if anything ends a partition's goroutine, the
// lease is released, which is reported, and the partition is acquired again.
func TestDeliveryThatIsEndedReleasesItsLease(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one")
		_, stop := s.Run(&exiting{Hub: s.Hub}, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
		time.Sleep(10 * time.Second)
		if rows := s.Rows(); len(rows) != 1 {
			s.T.Errorf("rows %v, want one", rows)
		}
		if lost := s.Observations(driver.KindLost); len(lost) != 1 || !strings.Contains(lost[0].Err.Error(), "a goroutine of the partition was ended") {
			s.T.Errorf("lost %v", lost)
		}
		stop()
	})
}

// TestRecordsEndTheirGoroutine: runtime.Goexit in the records function, or a panic or
// runtime.Goexit in the function for the key, makes that event a dead letter.
func TestRecordsEndTheirGoroutine(t *testing.T) {
	records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
		if string(e.Body) == "exit" {
			runtime.Goexit()
		}
		return []*sluice.Event{e}, nil
	}
	key := func(e *sluice.Event) string {
		switch string(e.Body) {
		case "exit in key":
			runtime.Goexit()
		case "panic in key":
			panic("odd key")
		}
		return ""
	}
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "exit", "three", "exit in key", "panic in key", "six")
		written := enginetest.NewWarehouse(s.T)
		_, stop := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, records, sluice.Keyed(written, key), nil), sluice.Config{})
		time.Sleep(time.Minute)
		if rows := enginetest.Sorted(written.Rows()); !slices.Equal(rows, []int64{0, 2, 5}) {
			s.T.Errorf("rows %v, want 0, 2 and 5", rows)
		}
		var errs []string
		for _, d := range s.Letters() {
			errs = append(errs, d.Error)
		}
		const exited = "make records: records function ended its goroutine (runtime.Goexit): it must return, with an error if it failed"
		if !slices.Equal(errs, []string{exited, exited, "make records: panic: odd key"}) {
			s.T.Errorf("dead letters %q", errs)
		}
		stop()
	})
}

// TestSinkThatCompletesNothing: records that the sink has and does not complete are
// reported.
func TestSinkThatCompletesNothing(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two")
		release := make(chan struct{})
		sink := enginetest.Must(sluice.Workers(2, func(context.Context, *sluice.Event) error { <-release; return nil }))
		_, stop := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, nil), sluice.Config{})
		s.stalledUntil(release, "sink has completed no record for 30s")
		stop()
	})
}

// TestHangingRecords: a records function that does not return is reported, with its
// event.
func TestHangingRecords(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two")
		release := make(chan struct{})
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			if e.Sequence == 1 {
				<-release
			}
			return []*sluice.Event{e}, nil
		}
		_, stop := s.Run(s.Hub, sluice.AtLeastOnce(s.Store, records, enginetest.NewWarehouse(s.T), nil), sluice.Config{})
		s.stalledUntil(release, "records function has not returned for 30s: event 1; ")
		stop()
	})
}

// TestHangingHooks: a hook that does not return is reported by its name.
func TestHangingHooks(t *testing.T) {
	for name, with := range map[string]func(hang func() error) sluice.Hooks{
		"Assigned": func(hang func() error) sluice.Hooks {
			return sluice.Hooks{Assigned: func(context.Context, sluice.Lease, sluice.Checkpoint) error { return hang() }}
		},
		"Batch": func(hang func() error) sluice.Hooks {
			return sluice.Hooks{Batch: func(context.Context, sluice.Batch) error { return hang() }}
		},
		"Renewed or Error": func(hang func() error) sluice.Hooks {
			return sluice.Hooks{Renewed: func(context.Context, sluice.Lease) error { return hang() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				s.Send("0", "one")
				release := make(chan struct{})
				hooks := with(func() error { <-release; return nil })
				_, stop := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{Hooks: hooks})
				time.Sleep(10 * time.Second)
				s.stalledUntil(release, "hook "+name+" has not returned for 30s")
				stop()
			})
		})
	}
}

// stalledUntil expects one stall that is reported after LeaseFor, and its end when
// release is closed.
func (s *scene) stalledUntil(release chan struct{}, want string) {
	s.T.Helper()
	time.Sleep(35 * time.Second)
	if got := s.Stalls(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		s.T.Errorf("stalls %q, want %q", got, want)
	}
	close(release)
	time.Sleep(2 * time.Second)
	if n := s.Count(driver.KindResumed); n != 1 {
		s.T.Errorf("resumed %d times, want once", n)
	}
}

// A topic is recreated while the reader is silent, and holds fewer events than were read.
// lenientHub opens a position although retention has removed all events after it, as Event Hubs
// does.
type lenientHub struct{ *sluicetest.Hub }

func (h lenientHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	if !errors.Is(err, sluice.ErrRetention) {
		return r, err
	}
	if after, err = h.Seek(ctx, partition, sluice.Earliest(), epoch); err != nil {
		return nil, err
	}
	return h.Hub.Open(ctx, partition, after, epoch)
}

// Where all events that were not read have expired, that is reported before the next event comes.
func TestQuietPartitionThatLostEvents(t *testing.T) {
	stage(t, 1, func(s *scene) {
		consume := func() func() {
			_, end := s.Run(lenientHub{s.Hub}, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
			return end
		}
		s.Send("0", "one")
		end := consume()
		time.Sleep(10 * time.Second)
		end()
		s.Send("0", "two", "three")
		s.Hub.Trim("0", 3)
		end = consume()
		defer end()
		time.Sleep(10 * time.Minute)
		stopped := s.Observations(driver.KindHalted)
		var gap *driver.RetentionError
		if len(stopped) != 1 || !errors.As(stopped[0].Err, &gap) || gap.After != 0 || gap.First != 3 {
			s.T.Errorf("stopped by %v, want one ErrRetention", stopped)
		}
		if failed := s.Observations(driver.KindFailed); len(failed) > 0 {
			s.T.Errorf("failures %v", failed)
		}
	})
}

func TestSilentReaderOfARecreatedTopic(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two", "three")
		_, end := s.Run(s.Hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
		defer end()
		time.Sleep(10 * time.Second)
		s.Hub.Silence("0")
		s.Hub.Recreate()
		s.Send("0", "new")
		time.Sleep(2 * time.Minute)
		stopped := s.Observations(driver.KindHalted)
		if len(stopped) == 0 || !errors.Is(stopped[0].Err, sluice.ErrRecreated) {
			s.T.Errorf("stopped by %v, want an ErrRecreated", stopped)
		}
	})
}
