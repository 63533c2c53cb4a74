package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/internal/partitionstate"
	"github.com/sluice-go/sluice/sluicetest"
)

// oneStall checks that one stall was reported after StallAfter and up to 5 s later, that it ended
// within 15 s of the end of its cause, and not earlier.
func (s *scene) oneStall(began, ended time.Time, want ...string) {
	s.T.Helper()
	stalls, resumed := s.Observations(driver.KindStalled), s.Observations(driver.KindResumed)
	if len(stalls) == 0 || len(resumed) != 1 {
		s.T.Fatalf("stalls %q, %d ends, want one", s.Stalls(), len(resumed))
	}
	if after := stalls[0].Time.Sub(began); after < 29*time.Second || after > 35*time.Second {
		s.T.Errorf("reported after %v: %v", after, stalls[0].Err)
	}
	if !slices.ContainsFunc(want, func(part string) bool { return strings.Contains(stalls[0].Err.Error(), part) }) {
		s.T.Errorf("reported %q, want %q in it", stalls[0].Err, want)
	}
	if after := resumed[0].Time.Sub(ended); after < 0 || after > 15*time.Second {
		s.T.Errorf("ended %v after its cause", after)
	}
	if d := resumed[0].Duration - resumed[0].Time.Sub(began); d < -2*time.Second || d > 2*time.Second {
		s.T.Errorf("the stall had lasted %v, want %v", resumed[0].Duration, resumed[0].Time.Sub(began))
	}
}

// A table is locked, and each statement that waits for it ends by its own time limit: no call lasts
// long, and nothing is done.
func TestStallOfShortCalls(t *testing.T) {
	for _, limit := range []time.Duration{2 * time.Second, 10 * time.Second, 29 * time.Second} {
		var locked atomic.Bool
		waits := func(ctx context.Context) error {
			if !locked.Load() {
				return nil
			}
			for range limit / (100 * time.Millisecond) {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
				if !locked.Load() {
					return nil
				}
			}
			return fmt.Errorf("statement time-out: %w", driver.ErrTimeLimit)
		}
		deliveries := map[string]func(s *scene) sluice.Delivery{
			"transactional": func(s *scene) sluice.Delivery {
				return sluice.Transactional(s.Store, func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
					for _, e := range b.Events {
						if err := waits(ctx); err != nil {
							return err
						}
						if err := tx.Insert("rows", e.Sequence); err != nil {
							return err
						}
					}
					return nil
				})
			},
			"batches": func(s *scene) sluice.Delivery {
				return sluice.Batches(s.Store, func(ctx context.Context, _ sluice.Batch) error { return waits(ctx) }, nil)
			},
			"at least once": func(s *scene) sluice.Delivery {
				sink := enginetest.Must(sluice.Workers(4, func(ctx context.Context, _ *sluice.Event) error { return driver.Outage(waits(ctx)) }))
				return sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, nil)
			},
			"replay": func(s *scene) sluice.Delivery {
				return sluice.Replay(sluice.Replayer{Apply: func(ctx context.Context, _ sluice.Batch) error { return waits(ctx) }})
			},
		}
		for name, delivery := range deliveries {
			t.Run(fmt.Sprint(name, "/", limit), func(t *testing.T) {
				stage(t, 1, func(s *scene) {
					s.Send("0", "before")
					_, stop := s.Run(s.Hub, delivery(s), sluice.Config{})
					time.Sleep(10 * time.Second)
					locked.Store(true)
					began := time.Now()
					s.Send("0", slices.Repeat([]string{"good"}, 40)...)
					time.Sleep(150 * time.Second)
					locked.Store(false)
					ended := time.Now()
					time.Sleep(time.Minute)
					s.oneStall(began, ended, "no event ", "sink has completed no record")
					if dead := len(s.Letters()); dead > 0 {
						s.T.Errorf("%d dead letters", dead)
					}
					stop()
				})
			})
		}
	}
}

// muteHub is a log whose readers return nothing while it is mute.
type muteHub struct {
	*sluicetest.Hub
	mute atomic.Bool
}

type muteReader struct {
	driver.Reader
	hub *muteHub
}

func (h *muteHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	return muteReader{r, h}, err
}

func (r muteReader) Read(ctx context.Context, most int) ([]*sluice.Event, error) {
	if r.hub.mute.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r.Reader.Read(ctx, most)
}

// The log answers for its end, and no reader ever returns anything: each is replaced, which is no
// progress.
func TestStallOfReadersThatReturnNothing(t *testing.T) {
	stage(t, 1, func(s *scene) {
		hub := &muteHub{Hub: s.Hub}
		s.Send("0", "one")
		_, stop := s.Run(hub, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
		time.Sleep(10 * time.Second)
		hub.mute.Store(true)
		s.Send("0", "two") // comes: the Read was in progress
		time.Sleep(7 * time.Second)
		s.Send("0", "three", "four")
		began := time.Now()
		time.Sleep(10 * time.Minute)
		hub.mute.Store(false)
		ended := time.Now()
		time.Sleep(time.Minute)
		stop()
		if stalls, resumed := s.Observations(driver.KindStalled), s.Observations(driver.KindResumed); len(stalls) == 0 || len(resumed) != 1 ||
			stalls[0].Time.Sub(began) > 41*time.Second { // it is known after lagEvery that they wait
			s.T.Fatalf("stalls %v, ended %v", s.Stalls(), resumed)
		} else if resumed[0].Time.Before(ended) || !strings.Contains(stalls[0].Err.Error(), "while 2 wait") {
			s.T.Errorf("stalls %q, ended %v", s.Stalls(), resumed[0].Time.Sub(ended))
		}
		if rows := s.Rows(); len(rows) != 4 {
			s.T.Errorf("rows %v", rows)
		}
	})
}

// refusing is a log whose readers fail as soon as they read.
type refusing struct{ *sluicetest.Hub }

type refusedReader struct{ driver.Reader }

func (h refusing) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	if after.Sequence >= 2 {
		return r, err
	}
	return refusedReader{r}, err
}

func (refusedReader) Read(context.Context, int) ([]*sluice.Event, error) {
	return nil, fmt.Errorf("event 1: %w", sluice.ErrUndecodable)
}

// A halt whose error comes with the first event lasts until an operator has set the checkpoint. It
// is tried every ten seconds, which opens the log and ends nothing.
func TestHaltLastsUntilSomethingIsDone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.Send("0", "one", "two", "three")
		state := partitionstate.New(nil)
		both := observers{s, state}
		c := enginetest.Must(sluice.New(refusing{s.Hub}, s.Leases, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), &sluice.Config{Observer: both}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		for range 20 {
			time.Sleep(7 * time.Second)
			if p := state.State().Partitions["0"]; !errors.Is(p.Stopped, sluice.ErrUndecodable) {
				s.T.Errorf("state %+v, want it to be halted", p)
			}
		}
		if n := s.Count(driver.KindHalted); n != 1 || s.Count(driver.KindOpened) < 10 || s.Count(driver.KindStalled)+s.Count(driver.KindResumed) > 0 {
			s.T.Errorf("halted %d times, opened %d times, stalls %q", n, s.Count(driver.KindOpened), s.Stalls())
		}
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 2}, driver.HowSet))
		time.Sleep(15 * time.Second)
		if p := state.State().Partitions["0"]; p.Stopped != nil || !p.Held {
			s.T.Errorf("state %+v, want it to read", p)
		}
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Error(err)
		}
	})
}

type observers []driver.Observer

func (list observers) Observe(o driver.Observation) {
	for _, each := range list {
		each.Observe(o)
	}
}

// What configuration, a handler or a sink asks for is no stall.
func TestWaitsThatAreAskedFor(t *testing.T) {
	never := func(t *testing.T, partitions int, run func(s *scene) func()) {
		stage(t, partitions, func(s *scene) {
			stop := run(s)
			if got := s.Stalls(); len(got) > 0 {
				s.T.Errorf("stalls %q", got)
			}
			stop()
		})
	}
	t.Run("rate", func(t *testing.T) {
		never(t, 60, func(s *scene) func() {
			for p := range 60 {
				s.SendKeyed(fmt.Sprint(p), 5, enginetest.NoKey)
			}
			_, stop := s.Pour(enginetest.NewWarehouse(s.T), &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewRate(1))}, sluice.Config{})
			time.Sleep(4 * time.Minute)
			return func() { stop() }
		})
	})
	t.Run("handler", func(t *testing.T) {
		never(t, 1, func(s *scene) func() {
			began := time.Now()
			_, stop := s.Consume("a", func(_ context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
				if time.Since(began) < 5*time.Minute {
					return driver.RetryAfter(errors.New("429: quota"), 5*time.Minute)
				}
				return tx.Insert("rows", b.Events[0].Sequence)
			}, sluice.Config{MaxBatch: 1})
			s.Send("0", "one")
			time.Sleep(6 * time.Minute)
			return func() { stop() }
		})
	})
	t.Run("checkpoint interval", func(t *testing.T) {
		never(t, 1, func(s *scene) func() {
			delivery := sluice.Batches(s.Store, func(context.Context, sluice.Batch) error { return nil }, &sluice.BatchesConfig{CheckpointEvery: 10 * time.Minute})
			_, stop := s.Run(s.Hub, delivery, sluice.Config{})
			for range 60 {
				s.Send("0", "good")
				time.Sleep(20 * time.Second)
			}
			return stop
		})
	})
	t.Run("paused reader", func(t *testing.T) {
		never(t, 1, func(s *scene) func() {
			s.Send("0", "one")
			_, stop := s.Run(pausedHub{s.Hub}, sluice.Transactional(s.Store, sluice.Each(enginetest.Insert)), sluice.Config{})
			time.Sleep(10 * time.Minute)
			return stop
		})
	})
}

// A handler that asks for short waits for ever stalls its partition.
func TestWaitsForEverAreAStall(t *testing.T) {
	stage(t, 1, func(s *scene) {
		var down atomic.Bool
		down.Store(true)
		_, stop := s.Consume("a", sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			if down.Load() {
				return driver.RetryAfter(errors.New("503 from the API"), 3*time.Second)
			}
			return enginetest.Insert(ctx, tx, e)
		}), sluice.Config{})
		began := time.Now()
		s.Send("0", "one", "two")
		time.Sleep(10 * time.Minute)
		down.Store(false)
		ended := time.Now()
		time.Sleep(time.Minute)
		s.oneStall(began, ended, "503 from the API")
		stop()
	})
}

// TestRateThatAdmitsNothing: a partition whose records another consumer's leave no room for is
// stalled, until they do.
func TestRateThatAdmitsNothing(t *testing.T) {
	stage(t, 1, func(s *scene) {
		const others = 200
		rate := enginetest.Must(sluice.NewRate(1))
		hub := sluicetest.NewHub(sluice.Group{Namespace: "test", Topic: "other", Name: "$Default"}, others)
		for p := range others {
			hub.Append(fmt.Sprint(p), sluicetest.Bodies("one")...)
		}
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) { return []*sluice.Event{e}, nil }
		_, stopOthers := enginetest.Run(s.T, hub, &sluicetest.Leases{}, sluice.AtLeastOnce(&sluicetest.Store{}, records, enginetest.NewWarehouse(s.T), &sluice.AtLeastOnceConfig{Rate: rate}), sluice.AllPartitions, sluice.Config{})
		time.Sleep(15 * time.Second)
		sink := &timedSink{Sink: enginetest.NewWarehouse(s.T)}
		_, stop := s.Pour(sink, &sluice.AtLeastOnceConfig{Rate: rate}, sluice.Config{})
		time.Sleep(5 * time.Second)
		began := time.Now()
		s.Send("0", "one")
		time.Sleep(4 * time.Minute)
		s.oneStall(began, *sink.admitted.Load(), "rate has admitted no record")
		if err := stop(); err != nil {
			s.T.Error(err)
		}
		stopOthers()
	})
}

// timedSink notes when it gets a record.
type timedSink struct {
	driver.Sink[*sluice.Event]
	admitted atomic.Pointer[time.Time]
}

func (k *timedSink) Submit(ctx context.Context, e *sluice.Event, done func(driver.WriteResult)) {
	now := time.Now()
	k.admitted.Store(&now)
	k.Sink.Submit(ctx, e, done)
}

type pausedHub struct{ *sluicetest.Hub }

type pausedReader struct{ driver.Reader }

func (h pausedHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	return pausedReader{r}, err
}

func (pausedReader) Paused() bool { return true }

func (pausedReader) Read(ctx context.Context, _ int) ([]*sluice.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
