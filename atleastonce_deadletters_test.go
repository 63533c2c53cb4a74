package sluice_test

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
)

func TestStreamDeadLetters(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.send("0", "good", "reject 1", "good", "bad 3", "unmade 4", "panic 5", "good")
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, _ int) error {
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
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, records, w, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		var got []string
		for _, d := range s.letters() {
			got = append(got, fmt.Sprintf("%d %d %s", d.Event.Sequence, d.Attempts, d.Error))
		}
		want := []string{"1 1 reject 1", "3 3 bad 3", "4 1 make records: unmade 4", "5 1 make records: panic: panic 5"}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("dead letters %q, want %q", got, want)
		}
		if got := w.tries(3); got != 3 {
			t.Errorf("%d attempts at event 3, want 3", got)
		}
		if got := s.position("0"); got != 6 {
			t.Errorf("checkpoint at %d, want 6", got)
		}
	})
}

// The checkpoint does not pass an event whose dead letter could not be stored.
func TestStreamLettersComeFirst(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.send("0", "good", "reject 1", "good")
		w := newWarehouse(t)
		w.says = func(e *sluice.Event, _ int) error {
			if strings.HasPrefix(string(e.Body), "reject") {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		letters := &failingLetters{DeadLetterQueue: s.store, err: errors.New("no room")}
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(struct {
			driver.CheckpointStore
			driver.DeadLetterQueue
		}{s.store, letters}, sluice.EventAsRecord, w, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(20 * time.Second)
		if got := s.position("0"); got != 0 {
			t.Errorf("checkpoint at %d while the dead letter of event 1 is not stored, want 0", got)
		}
		letters.mend()
		time.Sleep(20 * time.Second)
		if got := s.position("0"); got != 2 || len(s.letters()) != 1 {
			t.Errorf("checkpoint at %d and %d dead letters, want 2 and 1", got, len(s.letters()))
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
		t := s.t
		before := must(s.hub.Describe(t.Context())).Incarnation
		s.send("0", "reject")
		w := newWarehouse(t)
		w.takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		w.says = func(*sluice.Event, int) error { return driver.Reject(errors.New("no")) }
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Second)
		s.hub.Recreate()
		time.Sleep(40 * time.Second)
		if s.count(driver.KindStopped) == 0 {
			t.Error("the partition was not halted: the test shows nothing")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.letters(); len(got) != 1 || got[0].Incarnation != before {
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
		t := s.t
		s.keyed("0", 60, func(i int) string { return fmt.Sprint("k", i%3) })
		w := newWarehouse(t)
		broken := true
		w.says = func(e *sluice.Event, _ int) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if broken && e.Sequence == 30 { // of k0
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		cfg := &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}
		_, stop := s.pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.letters()); got != 10 {
			t.Errorf("%d dead letters, want event 30 and the 9 behind it of its key", got)
		}
		// Held back also after a restart.
		s.keyed("0", 3, func(i int) string { return fmt.Sprint("k", i%3) })
		_, stop = s.pour(w, cfg, sluice.Config{})
		time.Sleep(10 * time.Second)
		if got := len(s.letters()); got != 11 {
			t.Errorf("%d dead letters after a restart, want 11", got)
		}
		w.mu.Lock()
		broken = false
		w.mu.Unlock()
		must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Second)
		s.keyed("0", 1, func(int) string { return "k0" })
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := s.letters(); len(got) != 0 {
			t.Errorf("%d dead letters left after a retry of all", len(got))
		}
		var k0 []int64
		for _, n := range w.rows() {
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
				t := s.t
				s.keyed("0", 50, noKey)
				w := newWarehouse(t)
				broken := true
				w.says = func(e *sluice.Event, _ int) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					if broken && e.Sequence%5 == 0 || e.Sequence == 7 {
						return driver.Reject(errors.New("no"))
					}
					return nil
				}
				_, stop := s.pour(w, nil, sluice.Config{BodyLimit: limit})
				time.Sleep(10 * time.Second)
				if got := len(s.letters(sluice.StatusDead)); got != 11 {
					t.Fatalf("%d dead letters, want 11", got)
				}
				w.mu.Lock()
				broken = false
				w.mu.Unlock()
				must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
				s.keyed("0", 50, noKey)
				time.Sleep(30 * time.Second)
				left := s.letters()
				if len(left) != 1 || left[0].Event.Sequence != 7 || left[0].Attempts != 2 || left[0].Status != sluice.StatusDead {
					t.Errorf("left: %+v, want event 7, tried twice", left)
				}
				// Without an owner the command does it.
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
				w.says = nil
				c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, sluice.EventAsRecord, w, nil), &sluice.Config{Partitions: 1}))
				applied, failed, err := c.Redrive(t.Context())
				if applied != 1 || failed != 0 || err != nil {
					t.Errorf("redrive: %d applied, %d failed, %v", applied, failed, err)
				}
				want := upTo(100)
				if got := sorted(w.rows()); !slices.Equal(got, want) {
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
		t := s.t
		s.keyed("1", 20, noKey)
		w := newWarehouse(t)
		w.says = func(*sluice.Event, int) error { return driver.Reject(errors.New("no")) }
		_, stop := s.pour(w, nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
		w.says, w.sent = nil, nil
		cfg := &sluice.AtLeastOnceConfig{Rate: must(sluice.NewClusterRate(10))}
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, sluice.EventAsRecord, w, cfg), &sluice.Config{Partitions: 1}))
		applied, failed, err := c.Redrive(t.Context())
		if applied != 20 || failed != 0 || err != nil {
			t.Errorf("redrive: %d applied, %d failed, %v", applied, failed, err)
		}
		window(t, w.sent, 5)
	})
}

// TestRedrivesKeepTheirOrder redrives the dead letters of one key while the first one's record
// can't be made.
func TestRedrivesKeepTheirOrder(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.t
		s.keyed("0", 4, func(int) string { return "k" })
		w := newWarehouse(t)
		var redriving, down atomic.Bool
		w.says = func(*sluice.Event, int) error {
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
		c := must(sluice.New(s.hub, s.leases, sluice.AtLeastOnce(s.store, records, w, cfg), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		redriving.Store(true)
		down.Store(true)
		must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(10 * time.Second)
		if got := w.rows(); len(got) > 0 {
			t.Errorf("%v were written before event 0 of their key", got)
		}
		s.keyed("0", 1, func(int) string { return "another" })
		time.Sleep(time.Second)
		if got := w.rows(); !slices.Equal(got, []int64{4}) {
			t.Errorf("%v were written, want event 4: redrives delay no event of another key", got)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		if got, want := w.rows(), []int64{4, 0, 1, 2, 3}; !slices.Equal(got, want) {
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
		t := s.t
		s.keyed("0", 3, func(int) string { return "k" })
		w := newWarehouse(t)
		var redriving atomic.Bool
		w.says = func(*sluice.Event, int) error {
			if redriving.Load() {
				return nil
			}
			return driver.Reject(errors.New("no"))
		}
		_, stop := s.pour(w, &sluice.AtLeastOnceConfig{OnDeadLetter: sluice.KeyHold}, sluice.Config{BodyLimit: -1})
		time.Sleep(10 * time.Second)
		redriving.Store(true)
		s.hub.Trim("0", 1)
		must(s.store.Redrive(t.Context(), group, sluice.DeadLetterFilter{}, time.Time{}))
		time.Sleep(30 * time.Second)
		if got := w.rows(); len(got) > 0 {
			t.Errorf("%v were written although the redrive of event 0, of the same key, failed", got)
		}
		if got := len(s.letters(sluice.StatusDead)); got != 3 {
			t.Errorf("%d dead letters, want 3", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
