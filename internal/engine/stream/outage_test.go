package stream_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/clock"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

func TestStreamRetriesForever(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 10, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		began := time.Now()
		w.Says = func(e *sluice.Event, attempt int) error {
			if e.Sequence == 4 && attempt <= 50 {
				return driver.RetryAfter(errors.New("429"), 0)
			}
			return nil
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := w.Tries(4); got != 51 {
			t.Errorf("%d attempts, want 51", got)
		}
		if took := w.Sent[len(w.Sent)-1].Sub(began); took < 100*time.Second || took > 105*time.Second {
			t.Errorf("50 waits of 2 s took %v", took)
		}
		if len(s.Letters()) != 0 || s.Position("0") != 9 {
			t.Errorf("%d dead letters, checkpoint at %d", len(s.Letters()), s.Position("0"))
		}
	})
}

// An outage stops the partition, is tried by one record at a time, and is
// never held against an event.
func TestStreamOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 2000, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		began := time.Now()
		w.Says = func(*sluice.Event, int) error {
			if time.Since(began) < 5*time.Minute {
				return driver.Outage(errors.New("401: key is not valid"))
			}
			return nil
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		w.Mu.Lock()
		sent := len(w.Sent)
		w.Mu.Unlock()
		if sent > 2060 { // all that was in flight at first, and then one at a time
			t.Errorf("%d records sent in 5 minutes of outage: it was not held back", sent)
		}
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := enginetest.Sorted(w.Rows()); !slices.Equal(got, enginetest.UpTo(2000)) {
			t.Errorf("%d rows written, want each of 2000 once", len(got))
		}
		if len(s.Letters()) != 0 {
			t.Errorf("%d dead letters, want none", len(s.Letters()))
		}
		if n := s.Count(driver.KindFailed); n == 0 || n > 60 {
			t.Errorf("the outage was told %d times", n)
		}
	})
}

// countedClock counts how often it is asked. From some number on each question takes time, so that
// a loop that never waits ends.
type countedClock struct {
	driver.Clock
	asked *atomic.Int64
}

func (c countedClock) Elapsed() time.Duration {
	if c.asked.Add(1) > 100_000 {
		time.Sleep(time.Millisecond)
	}
	return c.Clock.Elapsed()
}

// In an outage a probe whose time has come waits for a sink that is full, and does not use a
// processor meanwhile.
func TestStreamOutageOfAFullSink(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if e.Sequence == 7 { // the last of the first window
				return time.Millisecond
			}
			return time.Hour
		}
		w.Says = func(e *sluice.Event, attempt int) error {
			if e.Sequence == 7 && attempt == 1 {
				return driver.Outage(errors.New("no connection"))
			}
			return nil
		}
		var asked atomic.Int64
		_, stop := s.Pour(w, nil, sluice.Config{Clock: countedClock{clock.New(), &asked}})
		time.Sleep(30 * time.Minute)
		if n := asked.Load(); n > 50_000 {
			t.Errorf("the clock was asked %d times in half an hour in which nothing could be done", n)
		}
		asked.Store(-1 << 40)
		time.Sleep(2 * time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := w.Tries(7); n != 2 {
			t.Errorf("%d attempts at the event that failed, want 2", n)
		}
	})
}

// A stop in an outage, while the target still has records, waits for these
// without a stir.
func TestStreamStopsInAnOutage(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 100, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(e *sluice.Event) time.Duration {
			if e.Sequence == 5 {
				return time.Minute
			}
			return time.Millisecond
		}
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence != 5 {
				return driver.Outage(errors.New("down"))
			}
			return nil
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Second || took > 56*time.Second {
			t.Errorf("the stop took %v, want until the record was written", took)
		}
		if got := len(w.Rows()); got != 1 {
			t.Errorf("%d rows, want 1", got)
		}
	})
}

// A database that lost commits has the checkpoint of a topic that was recreated since. What is
// in flight is of the new incarnation: it must not move the checkpoint of the old one.
func TestStreamLosesTheCheckpointOfARecreatedTopic(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.SendKeyed("0", 1, enginetest.NoKey)
		_, stop := s.Pour(enginetest.NewWarehouse(t), nil, sluice.Config{})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		lose := s.Store.Snapshot()
		s.Hub.Recreate()
		set := func() {
			topic := enginetest.Must(s.Hub.Describe(t.Context()))
			enginetest.Must(s.Store.Reset(t.Context(), enginetest.Group, "0", topic.Incarnation, driver.Origin, "set"))
		}
		set()
		s.SendKeyed("0", 5, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		hub := &enginetest.FlakyLog{Hub: s.Hub, Every: 8 * time.Second}
		c := enginetest.Must(sluice.New(hub, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, w, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		before := enginetest.Must(s.Store.Read(t.Context(), enginetest.Group))[0].Incarnation
		lose()
		time.Sleep(time.Minute)
		cp := enginetest.Must(s.Store.Read(t.Context(), enginetest.Group))[0]
		if cp.Incarnation == before || cp.Position.Sequence != 0 {
			t.Errorf("the checkpoint of the old incarnation (%s) is at %v, want 0", cp.Incarnation, cp.Position)
		}
		stopped := s.Observations(driver.KindHalted)
		if n := len(stopped); n == 0 || !errors.Is(stopped[n-1].Err, sluice.ErrRecreated) {
			t.Errorf("stopped by %v, want an ErrRecreated", stopped)
		}
		set()
		time.Sleep(2 * time.Minute)
		if cp := enginetest.Must(s.Store.Read(t.Context(), enginetest.Group))[0]; cp.Incarnation != before || cp.Position.Sequence != 4 {
			t.Errorf("after an operator has set it, the checkpoint is at %v of %s, want 4", cp.Position, cp.Incarnation)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
	})
}

// TestStreamStartsAgainInARecreatedTopic: the database has lost all of a partition's
// checkpoint, so that the claim begins with the new incarnation of the topic. What is in
// flight is of the old one, and must not count as done in the new one.
func TestStreamStartsAgainInARecreatedTopic(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		lose := s.Store.Snapshot()
		s.SendKeyed("0", 5, enginetest.NoKey)
		house := enginetest.NewWarehouse(t)
		house.Takes = func(*sluice.Event) time.Duration { return 20 * time.Second }
		c := enginetest.Must(sluice.New(&enginetest.FlakyLog{Hub: s.Hub, Every: 8 * time.Second}, s.Leases, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, house, nil), &sluice.Config{Observer: s}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		s.Hub.Recreate()
		lose()
		s.SendKeyed("0", 3, enginetest.NoKey)
		time.Sleep(3 * time.Minute)
		topic := enginetest.Must(s.Hub.Describe(t.Context()))
		if cp := enginetest.Must(s.Store.Read(t.Context(), enginetest.Group))[0]; cp.Incarnation != topic.Incarnation || cp.Position.Sequence != 2 {
			t.Errorf("the checkpoint is at %v of %s, want 2 of %s", cp.Position, cp.Incarnation, topic.Incarnation)
		}
		if failed := s.Observations(driver.KindFailed); !slices.ContainsFunc(failed, func(o driver.Observation) bool { return errors.Is(o.Err, sluice.ErrRecreated) }) {
			t.Errorf("reported %v, want an ErrRecreated", failed)
		}
		if n := len(house.Rows()); n != 5+3 {
			t.Errorf("%d writes, want 5 of the old topic and 3 of the new one", n)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-ran
	})
}

// After an outage, records that the sink rejects are worked off as fast as without one. Nothing is
// written meanwhile, so that only rejections show that the sink answers.
func TestStreamRejectsAfterAnOutage(t *testing.T) {
	const n = 5000
	took := func(outage bool) (took time.Duration) {
		stage(t, 1, func(s *scene) {
			s.SendKeyed("0", n, enginetest.NoKey)
			w := enginetest.NewWarehouse(s.T)
			w.Takes = func(*sluice.Event) time.Duration { return 10 * time.Millisecond }
			w.Says = func(e *sluice.Event, attempt int) error {
				if outage && e.Sequence == 0 && attempt == 1 {
					return driver.Outage(errors.New("no connection"))
				}
				return driver.Reject(errors.New("no"))
			}
			began := time.Now()
			_, stop := s.Pour(w, nil, sluice.Config{})
			for s.Count(driver.KindParked) < n && time.Since(began) < 10*time.Minute {
				time.Sleep(100 * time.Millisecond)
			}
			took = time.Since(began)
			if err := stop(); err != nil {
				s.T.Fatal(err)
			}
			if got := len(s.Letters()); got != n {
				s.T.Errorf("%d dead letters, want %d", got, n)
			}
		})
		return took
	}
	without := took(false)
	with := took(true)
	t.Logf("%d rejections take %v, after an outage %v", n, without, with)
	if with > without+3*time.Second {
		t.Errorf("after an outage %d rejections take %v, want little more than the %v without", n, with, without)
	}
}

// A sink that rejects some records without a look at its store does not end an outage: the others
// are still tried by one at a time, or few.
func TestStreamOutageBesideRejections(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		const n = 2000
		s.SendKeyed("0", n, enginetest.NoKey)
		w := enginetest.NewWarehouse(t)
		w.Takes = func(*sluice.Event) time.Duration { return 10 * time.Millisecond }
		began := time.Now()
		var refused atomic.Int64
		w.Says = func(e *sluice.Event, _ int) error {
			switch {
			case e.Sequence%2 == 0:
				return driver.Reject(errors.New("no"))
			case time.Since(began) < 5*time.Minute:
				refused.Add(1)
				return driver.Outage(errors.New("no connection"))
			}
			return nil
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(5 * time.Minute)
		if got := refused.Load(); got > 200 {
			t.Errorf("%d records were tried in 5 minutes of outage: it was not held back", got)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got, want := len(w.Rows()), n/2; got != want {
			t.Errorf("%d rows written, want %d", got, want)
		}
		if got, want := len(s.Letters()), n/2; got != want {
			t.Errorf("%d dead letters, want %d", got, want)
		}
	})
}
