package replay_test

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

// recollection is memory that a replay builds, and what it was told.
type recollection struct {
	mu     sync.Mutex
	memory []int64
	told   []string
	fails  func(e *sluice.Event) error
}

func (r *recollection) replayer() sluice.Replayer {
	return sluice.Replayer{
		Apply: func(_ context.Context, b sluice.Batch) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range b.Events {
				if r.fails != nil {
					if err := r.fails(e); err != nil {
						return err
					}
				}
				r.memory = append(r.memory, e.Sequence)
			}
			return nil
		},
		CaughtUp: func(context.Context, sluice.Lease) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, fmt.Sprintf("caught up with %d", len(r.memory)))
			return nil
		},
		Released: func(_ sluice.Lease, cause error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, fmt.Sprintf("released %d: %v", len(r.memory), cause))
			r.memory = nil
		},
	}
}

func (r *recollection) now() ([]int64, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.memory), slices.Clone(r.told)
}

func (s *scene) remember(source driver.Source, r *recollection, start sluice.Start) func() error {
	s.T.Helper()
	c := enginetest.Must(sluice.New(source, s.Leases, sluice.Replay(r.replayer()), &sluice.Config{Observer: s, Start: start, MaxBatch: 70}))
	ran := make(chan error, 1)
	go func() { ran <- c.Run(s.T.Context()) }()
	return func() error { return errors.Join(c.Stop(s.T.Context()), <-ran) }
}

func TestReplayReadsAgainOnEveryAssignment(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		time.Sleep(2 * time.Hour)
		s.SendKeyed("0", 100, enginetest.NoKey)
		for range 2 {
			r := &recollection{}
			stop := s.remember(s.Hub, r, sluice.Ago(time.Hour))
			time.Sleep(5 * time.Second)
			s.SendKeyed("0", 10, enginetest.NoKey)
			time.Sleep(5 * time.Second)
			memory, told := r.now()
			if len(memory) < 110 || memory[0] != 100 || !slices.IsSorted(memory) {
				t.Errorf("in memory: %v", memory)
			}
			if want := fmt.Sprintf("caught up with %d", len(memory)-10); !slices.Equal(told, []string{want}) {
				t.Errorf("told %q, want %q", told, want)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			held := len(memory)
			memory, told = r.now()
			if want := fmt.Sprintf("released %d: <nil>", held); memory != nil || len(told) != 2 || told[1] != want {
				t.Errorf("after the stop: in memory %v, told %q, want %q", memory, told, want)
			}
		}
	})
}

func TestReplayOfAnEmptyPartitionHasCaughtUp(t *testing.T) {
	stage(t, 1, func(s *scene) {
		r := &recollection{}
		stop := s.remember(s.Hub, r, sluice.Earliest())
		time.Sleep(5 * time.Second)
		if _, told := r.now(); !slices.Equal(told, []string{"caught up with 0"}) {
			s.T.Errorf("told %q", told)
		}
		if err := stop(); err != nil {
			s.T.Fatal(err)
		}
	})
}

func TestReplayAfterAnError(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		r := &recollection{}
		failures := 0
		r.fails = func(e *sluice.Event) error {
			switch {
			case e.Sequence == 50 && failures == 0:
				failures++
				return errors.New("odd")
			case e.Sequence == 60 && failures == 1:
				failures++
				panic("worse")
			}
			return nil
		}
		stop := s.remember(s.Hub, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		memory, told := r.now()
		if !slices.Equal(memory, enginetest.UpTo(100)) {
			t.Errorf("in memory: %v", memory)
		}
		want := []string{"released 50: replay: apply: odd", "released 60: replay: apply: panic: worse", "caught up with 100"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// After an error nothing is in memory: all events that the log holds are behind.
func TestReplayLagAfterAnError(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		r, failed := &recollection{}, false
		r.fails = func(e *sluice.Event) error {
			if e.Sequence < 80 || failed {
				return nil
			}
			failed = true
			return errors.New("odd")
		}
		stop := s.remember(s.Hub, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		opened, lag := 0, int64(-1)
		for _, o := range s.Observations() {
			switch {
			case o.Kind == driver.KindOpened:
				opened++
			case o.Kind == driver.KindFetched && opened == 2 && lag < 0:
				lag = o.Lag
			}
		}
		if lag != 100 {
			t.Errorf("lag %d at the first read after the error, want 100", lag)
		}
	})
}

func TestReplayGoesOnAfterACut(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		r := &recollection{}
		stop := s.remember(&enginetest.FlakyLog{Hub: s.Hub, Every: time.Second}, r, sluice.Earliest())
		for range 20 {
			time.Sleep(time.Second)
			s.SendKeyed("0", 5, enginetest.NoKey)
		}
		time.Sleep(2 * time.Minute) // with every cut the next attempt comes later
		memory, told := r.now()
		if !slices.Equal(memory, enginetest.UpTo(200)) || !slices.Equal(told, []string{"caught up with 100"}) {
			t.Errorf("in memory: %v, told %q", memory, told)
		}
		if s.Count(driver.KindOpened) < 4 {
			t.Error("it was not cut")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A hub that was made anew, or has forgotten what comes next, leaves nothing of
// the old in memory.
func TestReplayBeginsAnew(t *testing.T) {
	for name, change := range map[string]func(h *sluicetest.Hub){
		"recreated": func(h *sluicetest.Hub) { h.Recreate() },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				t := s.T
				s.SendKeyed("0", 100, enginetest.NoKey)
				r := &recollection{}
				stop := s.remember(&enginetest.FlakyLog{Hub: s.Hub, Every: time.Second}, r, sluice.Earliest())
				time.Sleep(5 * time.Second)
				change(s.Hub)
				s.SendKeyed("0", 30, enginetest.NoKey)
				time.Sleep(2 * time.Minute)
				memory, told := r.now()
				if !slices.Equal(memory, enginetest.UpTo(30)) || len(told) < 3 || told[0] != "caught up with 100" {
					t.Errorf("in memory: %v, told %q", memory, told)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestReplayNeedsApply(t *testing.T) {
	if _, err := sluice.New(sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), sluice.Replay(sluice.Replayer{}), &sluice.Config{Partitions: 1}); err == nil {
		t.Error("a replay without Apply was taken")
	}
}

// The log's report of its end may be out of date: CaughtUp comes when all is in memory that
// the log held.
func TestReplayCaughtUpWithBoundsOutOfDate(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Hub.HoldBounds()
		s.SendKeyed("0", 200, enginetest.NoKey)
		r := &recollection{}
		stop := s.remember(s.Hub, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		if _, told := r.now(); !slices.Equal(told, []string{"caught up with 200"}) {
			t.Errorf("told %q", told)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestReplayStartsOverBehindRetention has retention pass the start before the memory is built
// again.
func TestReplayStartsOverBehindRetention(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Send("0", "a", "b", "c", "d", "e")
		var applied []int64
		failed := false
		c := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.Replay(sluice.Replayer{Apply: func(_ context.Context, b sluice.Batch) error {
			if !failed {
				failed = true
				s.Hub.Trim("0", 3)
				return errors.New("the memory is full")
			}
			for _, e := range b.Events {
				applied = append(applied, e.Sequence)
			}
			return nil
		}}), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(time.Minute)
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
		if !slices.Equal(applied, []int64{3, 4}) {
			t.Errorf("events %v were applied, want 3 and 4", applied)
		}
	})
}

// endLost is a log whose end is not found for a while.
type endLost struct {
	*sluicetest.Hub
	end time.Time
}

func (e *endLost) Seek(ctx context.Context, partition string, start sluice.Start, epoch int64) (sluice.Position, error) {
	if start.Kind == driver.StartLatest && time.Now().Before(e.end) {
		return driver.Unset, enginetest.ErrCut
	}
	return e.Hub.Seek(ctx, partition, start, epoch)
}

// TestReplayOfATopicRecreatedBehindTheStart has the topic recreated after the start was chosen
// and before an event was read: the start is another one then.
func TestReplayOfATopicRecreatedBehindTheStart(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.SendKeyed("0", 20, enginetest.NoKey)
		s.Hub.Trim("0", 10)
		r := &recollection{}
		stop := s.remember(&endLost{s.Hub, time.Now().Add(20 * time.Second)}, r, sluice.Earliest())
		time.Sleep(10 * time.Second)
		s.Hub.Recreate()
		s.SendKeyed("0", 20, enginetest.NoKey)
		time.Sleep(2 * time.Minute)
		if memory, _ := r.now(); !slices.Equal(memory, enginetest.UpTo(20)) {
			s.T.Errorf("in memory: %v, want all 20 events", memory)
		}
		if err := stop(); err != nil {
			s.T.Error(err)
		}
	})
}
