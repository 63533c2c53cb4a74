package stream_test

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
)

func TestStreamDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Send("0", "good", "reject 1", "good", "bad 3", "unmade 4", "panic 5", "good")
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			switch body := string(e.Body); {
			case strings.HasPrefix(body, "reject"):
				return driver.Reject(errors.New(body))
			case strings.HasPrefix(body, "bad"):
				return errors.New(body)
			}
			return nil
		}
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			switch body := string(e.Body); {
			case strings.HasPrefix(body, "unmade"):
				return nil, errors.New(body)
			case strings.HasPrefix(body, "panic"):
				panic(body)
			}
			return []*sluice.Event{e}, nil
		}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, records, w, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		var got []string
		for _, d := range s.Letters() {
			got = append(got, fmt.Sprintf("%d %d %s", d.Event.Sequence, d.Attempts, d.Error))
		}
		want := []string{"1 1 reject 1", "3 3 bad 3", "4 1 make records: unmade 4", "5 1 make records: panic: panic 5"}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("dead letters %q, want %q", got, want)
		}
		if got := w.Tries(3); got != 3 {
			t.Errorf("%d attempts at event 3, want 3", got)
		}
		if got := s.Position("0"); got != 6 {
			t.Errorf("checkpoint at %d, want 6", got)
		}
	})
}

// The checkpoint does not pass an event whose dead letter could not be stored.
func TestStreamLettersComeFirst(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Send("0", "good", "reject 1", "good")
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			if strings.HasPrefix(string(e.Body), "reject") {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		letters := &failingLetters{DeadLetterQueue: s.Store, err: errors.New("no room")}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(struct {
			driver.CheckpointStore
			driver.DeadLetterQueue
		}{s.Store, letters}, sluice.EventAsRecord, w, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(20 * time.Second)
		if got := s.Position("0"); got != 0 {
			t.Errorf("checkpoint at %d while the dead letter of event 1 is not stored, want 0", got)
		}
		letters.mend()
		time.Sleep(20 * time.Second)
		if got := s.Position("0"); got != 2 || len(s.Letters()) != 1 {
			t.Errorf("checkpoint at %d and %d dead letters, want 2 and 1", got, len(s.Letters()))
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
	})
}

// An event that was in flight when the topic was recreated is of the old incarnation.
func TestStreamLettersOfARecreatedTopic(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		before := enginetest.Must(s.Hub.Describe(t.Context())).Incarnation
		s.Send("0", "reject")
		w := enginetest.NewWarehouse(t)
		w.Takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		w.Says = func(*sluice.Event, int) error { return driver.Reject(errors.New("no")) }
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Second)
		s.Hub.Recreate()
		time.Sleep(40 * time.Second)
		if s.Count(driver.KindHalted) == 0 {
			t.Error("the partition was not halted: the test shows nothing")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.Letters(); len(got) != 1 || got[0].Incarnation != before {
			t.Errorf("dead letters %+v, want one of incarnation %s", got, before)
		}
	})
}

type failingLetters struct {
	driver.DeadLetterQueue
	mu  sync.Mutex
	err error
}

func (l *failingLetters) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = nil
}

func (l *failingLetters) Park(ctx context.Context, letters []sluice.DeadLetter) error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.DeadLetterQueue.Park(ctx, letters)
}

func TestStreamHoldsKeys(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 60, func(i int) string { return fmt.Sprint("k", i%3) })
		w := enginetest.NewWarehouse(t)
		broken := true
		w.Says = func(e *sluice.Event, _ int) error {
			w.Mu.Lock()
			defer w.Mu.Unlock()
			if broken && e.Sequence == 30 { // of k0
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		cfg := &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}
		_, stop := s.Pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.Letters()); got != 10 {
			t.Errorf("%d dead letters, want event 30 and the 9 behind it of its key", got)
		}
		// Held back also after a restart.
		s.SendKeyed("0", 3, func(i int) string { return fmt.Sprint("k", i%3) })
		_, stop = s.Pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if got := len(s.Letters()); got != 11 {
			t.Errorf("%d dead letters after a restart, want 11", got)
		}
		w.Mu.Lock()
		broken = false
		w.Mu.Unlock()
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Second)
		s.SendKeyed("0", 1, func(int) string { return "k0" })
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.Letters(); len(got) != 0 {
			t.Errorf("%d dead letters left after a retry of all", len(got))
		}
		var k0 []int64
		for _, n := range w.Rows() {
			if n%3 == 0 {
				k0 = append(k0, n)
			}
		}
		if !slices.IsSorted(k0) || len(k0) != 22 {
			t.Errorf("k0 was written as %v: not in order, or not all", k0)
		}
	})
}

func TestStreamRedrives(t *testing.T) {
	for name, limit := range map[string]int{"bodies": 0, "no bodies": -1} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				s.SendKeyed("0", 50, enginetest.NoKey)
				w := enginetest.NewWarehouse(t)
				broken := true
				w.Says = func(e *sluice.Event, _ int) error {
					w.Mu.Lock()
					defer w.Mu.Unlock()
					if broken && e.Sequence%5 == 0 || e.Sequence == 7 {
						return driver.Reject(errors.New("no"))
					}
					return nil
				}
				_, stop := s.Pour(w, nil, sluice.Config{BodyLimit: limit})
				time.Sleep(10 * time.Second)
				if got := len(s.Letters(sluice.StatusDead)); got != 11 {
					t.Fatalf("%d dead letters, want 11", got)
				}
				w.Mu.Lock()
				broken = false
				w.Mu.Unlock()
				enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
				s.SendKeyed("0", 50, enginetest.NoKey)
				time.Sleep(30 * time.Second)
				left := s.Letters()
				if len(left) != 1 || left[0].Event.Sequence != 7 || left[0].Attempts != 2 || left[0].Status != sluice.StatusDead {
					t.Errorf("left: %+v, want event 7, tried twice", left)
				}
				// Without an owner the command does it.
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
				w.Says = nil
				c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Partitions: 1}))
				applied, failed, err := c.Redrive(t.Context())
				if applied != 1 || failed != 0 || err != nil {
					t.Errorf("redrive: %d applied, %d failed, %v", applied, failed, err)
				}
				want := enginetest.UpTo(100)
				if got := enginetest.Sorted(w.Rows()); !slices.Equal(got, want) {
					t.Errorf("%d rows, want each of 100 once: %v", len(got), got)
				}
			})
		})
	}
}

// A retry by command keeps to the cluster's rate: it brings the share of the
// partition that it takes.
func TestStreamRedrivesWithinAClusterRate(t *testing.T) {
	stage(t, 2, func(s *scene) {
		t := s.T
		s.SendKeyed("1", 20, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Says = func(*sluice.Event, int) error { return driver.Reject(errors.New("no")) }
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		w.Says, w.Sent = nil, nil
		cfg := &sluice.AtLeastOnceConfig{Rate: enginetest.Must(sluice.NewClusterRate(10))}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, cfg), &sluice.Config{Partitions: 1}))
		applied, failed, err := c.Redrive(t.Context())
		if applied != 20 || failed != 0 || err != nil {
			t.Errorf("redrive: %d applied, %d failed, %v", applied, failed, err)
		}
		window(t, w.Sent, 5)
	})
}

// TestRedrivesKeepTheirOrder redrives the dead letters of one key while the first one's record
// can't be made.
func TestRedrivesKeepTheirOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 4, func(int) string { return "k" })
		w := enginetest.NewWarehouse(t)
		var redriving, down atomic.Bool
		w.Says = func(*sluice.Event, int) error {
			if redriving.Load() {
				return nil
			}
			return driver.Reject(errors.New("no"))
		}
		records := func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
			if down.Load() && e.Sequence == 0 {
				return nil, driver.RetryAfter(errors.New("the API is down"), time.Second)
			}
			return []*sluice.Event{e}, nil
		}
		cfg := &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(s.Store, records, w, cfg), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		redriving.Store(true)
		down.Store(true)
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Second)
		if got := w.Rows(); len(got) > 0 {
			t.Errorf("%v were written before event 0 of their key", got)
		}
		s.SendKeyed("0", 1, func(int) string { return "another" })
		time.Sleep(time.Second)
		if got := w.Rows(); !slices.Equal(got, []int64{4}) {
			t.Errorf("%v were written, want event 4: redrives delay no event of another key", got)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		if got, want := w.Rows(), []int64{4, 0, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("%v were written, want %v", got, want)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
	})
}

// TestRedrivesWaitForOneThatIsGone redrives two dead letters of one key without bodies, of
// which retention has removed the first one's event.
func TestRedrivesWaitForOneThatIsGone(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 3, func(int) string { return "k" })
		w := enginetest.NewWarehouse(t)
		var redriving atomic.Bool
		w.Says = func(*sluice.Event, int) error {
			if redriving.Load() {
				return nil
			}
			return driver.Reject(errors.New("no"))
		}
		_, stop := s.Pour(w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}, sluice.Config{BodyLimit: -1})
		time.Sleep(10 * time.Second)
		redriving.Store(true)
		s.Hub.Trim("0", 1)
		enginetest.Must(s.Store.Redrive(t.Context(), enginetest.Group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(30 * time.Second)
		if got := w.Rows(); len(got) > 0 {
			t.Errorf("%v were written although the redrive of event 0, of the same key, failed", got)
		}
		if got := len(s.Letters(sluice.StatusDead)); got != 3 {
			t.Errorf("%d dead letters, want 3", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
