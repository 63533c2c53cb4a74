package stream_test

import (
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
)

// redriving is a partition with dead letters of one key, from event 0 on.
type redriving struct {
	*scene
	w      *enginetest.Warehouse
	cfg    sluice.AtLeastOnceConfig
	broken atomic.Int64 // events up to here are rejected
	alone  atomic.Int64 // one more event that fails
	stop   func() error
}

func redrivingOf(s *scene, n int, policy sluice.KeyPolicy) *redriving {
	r := &redriving{scene: s, w: enginetest.NewWarehouse(s.T), cfg: sluice.AtLeastOnceConfig{OnDeadLetter: policy}}
	r.broken.Store(1 << 62)
	r.alone.Store(-1)
	r.w.Says = func(e *sluice.Event, _ int) error {
		if e.Sequence <= r.broken.Load() || e.Sequence == r.alone.Load() {
			return driver.Reject(errors.New("no"))
		}
		return nil
	}
	s.SendKeyed("0", n, func(int) string { return "k" })
	r.restart()
	return r
}

// restart makes another consumer the owner.
func (r *redriving) restart() {
	r.T.Helper()
	if r.stop != nil {
		r.end()
	}
	_, r.stop = r.Pour(r.w, &r.cfg, sluice.Config{})
	time.Sleep(10 * time.Second)
}

func (r *redriving) end() {
	r.T.Helper()
	if err := r.stop(); err != nil {
		r.T.Fatal(err)
	}
}

// redrive has the dead letters from an event on redriven at a time, and waits.
func (r *redriving) redrive(first int64, at time.Time) {
	r.T.Helper()
	enginetest.Must(r.Store.Redrive(r.T.Context(), enginetest.Group, sluice.DeadLetterFilter{FirstSequence: &first}, at))
	time.Sleep(10 * time.Second)
}

// wrote checks which events were written.
func (r *redriving) wrote(want ...int64) {
	r.T.Helper()
	if got := r.w.Rows(); !slices.Equal(got, want) {
		r.T.Errorf("%v were written, want %v", got, want)
	}
}

// heldBack checks that the dead letters from an event on say that an earlier one holds them.
func (r *redriving) heldBack(first, by int64) {
	r.T.Helper()
	for _, d := range r.Letters(sluice.StatusDead) {
		if want := fmt.Sprintf("held back: the dead letter of event %d, ", by); d.Event.Sequence >= first && !strings.HasPrefix(d.Error, want) {
			r.T.Errorf("error of event %d is %q, want %q …", d.Event.Sequence, d.Error, want)
		}
	}
}

// TestRedrivesWaitForEarlierOnes redrives dead letters of a key while an earlier one is there.
func TestRedrivesWaitForEarlierOnes(t *testing.T) {
	for name, test := range map[string]func(r *redriving){
		"an earlier one that nobody redrives": func(r *redriving) {
			r.broken.Store(-1)
			r.redrive(1, time.Time{})
			r.wrote()
			r.heldBack(1, 0)
			r.redrive(0, time.Time{})
			r.wrote(0, 1, 2, 3)
		},
		"an earlier one whose redrive failed before a restart": func(r *redriving) {
			r.broken.Store(1)
			r.redrive(0, time.Time{})
			r.heldBack(1, 0)
			r.restart()
			r.broken.Store(-1)
			r.redrive(2, time.Time{})
			r.wrote()
			r.heldBack(2, 0)
		},
		"an earlier one that is redriven later": func(r *redriving) {
			r.broken.Store(-1)
			r.redrive(0, time.Now().Add(time.Minute))
			r.redrive(2, time.Time{})
			r.wrote()
			r.heldBack(2, 0)
			time.Sleep(time.Minute)
			r.wrote(0, 1)
		},
		"an earlier one that failed and is discarded": func(r *redriving) {
			r.broken.Store(0)
			r.redrive(0, time.Time{})
			r.wrote()
			r.heldBack(1, 0)
			last := int64(0)
			enginetest.Must(r.Store.Discard(r.T.Context(), enginetest.Group, sluice.DeadLetterFilter{LastSequence: &last}))
			r.redrive(1, time.Time{})
			r.wrote(1, 2, 3)
		},
		"an earlier one of another incarnation": func(r *redriving) {
			r.end()
			r.Hub.Recreate()
			enginetest.Must(r.Store.Reset(r.T.Context(), enginetest.Group, "0", enginetest.Must(r.Hub.Describe(r.T.Context())).Incarnation, sluice.Position{Sequence: -1}, "set"))
			r.SendKeyed("0", 4, enginetest.NoKey)
			r.SendKeyed("0", 2, func(int) string { return "k" })
			r.stop = nil
			r.restart()
			r.broken.Store(-1)
			r.redrive(5, time.Time{})
			r.wrote()
			r.heldBack(5, 4)
			r.redrive(4, time.Time{})
			r.wrote(4, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				r := redrivingOf(s, 4, sluice.KeyHold)
				test(r)
				r.end()
			})
		})
	}
}

// TestRedrivesOfACommandWaitForEarlierOnes does so without an owner.
func TestRedrivesOfACommandWaitForEarlierOnes(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		r := redrivingOf(s, 4, sluice.KeyHold)
		r.end()
		r.broken.Store(-1)
		first := int64(1)
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{FirstSequence: &first}, time.Time{}))
		command := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, r.w, &r.cfg), &sluice.Config{Partitions: 1}))
		if applied, failed, err := command.Redrive(t.Context()); applied != 0 || failed != 3 || err != nil {
			t.Errorf("redrive: %d applied, %d failed, %v; want 0 and 3", applied, failed, err)
		}
		r.heldBack(1, 0)
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		if applied, failed, err := command.Redrive(t.Context()); applied != 4 || failed != 0 || err != nil {
			t.Errorf("redrive of all: %d applied, %d failed, %v; want 4 and 0", applied, failed, err)
		}
		r.wrote(0, 1, 2, 3)
	})
}

// TestRedrivesOfManyLooks redrives more dead letters of a key than one look returns, of which
// one in the middle fails again.
func TestRedrivesOfManyLooks(t *testing.T) {
	stage(t, 1, func(s *scene) {
		r := redrivingOf(s, 350, sluice.KeyHold)
		r.broken.Store(-1)
		r.alone.Store(150)
		r.redrive(0, time.Time{})
		r.wrote(enginetest.UpTo(150)...)
		r.heldBack(151, 150)
		r.alone.Store(-1)
		r.redrive(0, time.Time{})
		r.wrote(enginetest.UpTo(350)...)
		r.end()
	})
}

// TestRedrivesPassEarlierOnes redrives under KeyContinue.
func TestRedrivesPassEarlierOnes(t *testing.T) {
	stage(t, 1, func(s *scene) {
		r := redrivingOf(s, 4, sluice.KeyContinue)
		r.broken.Store(0)
		r.redrive(2, time.Time{})
		r.wrote(2, 3)
		r.redrive(0, time.Time{})
		r.wrote(2, 3, 1)
		r.end()
	})
}

// refused leaves dead letters without bodies, all marked for a redrive, and the sink that refused
// them.
func (s *scene) refused(letters int) *enginetest.Warehouse {
	s.SendKeyed("0", letters, enginetest.NoKey)
	w := enginetest.NewWarehouse(s.T)
	w.Says = func(*sluice.Event, int) error { return driver.Reject(errors.New("no")) }
	_, stop := s.Pour(w, nil, sluice.Config{BodyLimit: -1})
	time.Sleep(time.Minute)
	if err := stop(); err != nil {
		s.T.Fatal(err)
	}
	s.RedriveAll()
	return w
}

// Dead letters without bodies are read from the log, for which the reader of the events is closed.
// The events have their turn all the same, and the command that redrives redrives all.
func TestStreamRedrivesWithoutBodiesAndEventsTakeTurns(t *testing.T) {
	t.Run("no events", func(t *testing.T) {
		stage(t, 1, func(s *scene) {
			const letters = 400
			w := s.refused(letters)
			w.Says = nil
			c := enginetest.Must(sluice.New(enginetest.SlowLog{Hub: s.Hub, Takes: 300 * time.Millisecond}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{BodyLimit: -1, Observer: s, RedriveEvery: time.Minute}))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(s.T.Context()) }()
			time.Sleep(10 * time.Minute)
			if n := len(s.Letters()); n != 0 {
				s.T.Errorf("%d of %d dead letters are left", n, letters)
			}
			if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
				s.T.Fatal(err)
			}
		})
	})
	stage(t, 1, func(s *scene) {
		const letters, events = 400, 240
		w := s.refused(letters)
		sent := map[int64]time.Time{}
		var late []time.Duration
		w.Says = func(e *sluice.Event, _ int) error {
			w.Mu.Lock()
			defer w.Mu.Unlock()
			if at, ok := sent[e.Sequence]; ok {
				late = append(late, time.Since(at))
			}
			return nil
		}
		c := enginetest.Must(sluice.New(enginetest.SlowLog{Hub: s.Hub, Takes: 300 * time.Millisecond}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{BodyLimit: -1, Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(s.T.Context()) }()
		for n := range int64(events) {
			w.Mu.Lock()
			sent[letters+n] = time.Now()
			w.Mu.Unlock()
			s.SendKeyed("0", 1, enginetest.NoKey)
			time.Sleep(time.Second)
		}
		if left := len(s.Letters()); left > letters*3/4 {
			s.T.Errorf("%d of %d dead letters are left", left, letters)
		}
		if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
			s.T.Fatal(err)
		}
		left := len(s.Letters()) // some were redriven meanwhile
		slices.Sort(late)
		if len(late) != events || late[events*99/100] > 4*time.Second {
			s.T.Errorf("%d of %d events, late by up to %v, want 4s at most", len(late), events, late[len(late)*99/100])
		}
		c = enginetest.Must(sluice.New(enginetest.SlowLog{Hub: s.Hub, Takes: 300 * time.Millisecond}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Partitions: 1}))
		if applied, failed, err := c.Redrive(s.T.Context()); applied != left || failed != 0 || err != nil {
			s.T.Errorf("redrive: %d of %d applied, %d failed, %v", applied, left, failed, err)
		}
	})
}

// Many dead letters without bodies that are due at once do not make the events late that come
// beside them, one a second.
func TestStreamEventsBesideManyRedrivesWithoutBodies(t *testing.T) {
	for _, letters := range []int{400, 10_000} {
		stage(t, 1, func(s *scene) {
			const events = 300
			w := s.refused(letters)
			sent := map[int64]time.Time{}
			var late []time.Duration
			w.Says = func(e *sluice.Event, _ int) error {
				w.Mu.Lock()
				defer w.Mu.Unlock()
				if at, ok := sent[e.Sequence]; ok {
					late = append(late, time.Since(at))
				}
				return nil
			}
			c := enginetest.Must(sluice.New(enginetest.SlowLog{Hub: s.Hub, Takes: 300 * time.Millisecond}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{BodyLimit: -1, Observer: s}))
			ran := make(chan error, 1)
			go func() { ran <- c.Run(s.T.Context()) }()
			for n := range int64(events) {
				w.Mu.Lock()
				sent[int64(letters)+n] = time.Now()
				w.Mu.Unlock()
				s.SendKeyed("0", 1, enginetest.NoKey)
				time.Sleep(time.Second)
			}
			left := len(s.Letters())
			if err := errors.Join(c.Stop(s.T.Context()), <-ran); err != nil {
				s.T.Fatal(err)
			}
			slices.Sort(late)
			if len(late) != events {
				s.T.Fatalf("%d of %d events were written", len(late), events)
			}
			median, most := late[events/2], late[events*99/100]
			s.T.Logf("%d dead letters: events late by %v (median), %v (99 %%); %d redriven in %d s", letters, median, most, letters-left, events)
			if most > 3*time.Second || letters-left < 200 {
				s.T.Errorf("%d dead letters: events late by up to %v, want 3s at most; %d redriven, want 200 at least", letters, most, letters-left)
			}
		})
	}
}
