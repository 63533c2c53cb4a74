package sluice_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicetest"
)

// of returns the observations of a kind.
func (s *scene) of(k sluice.ObservationKind) (list []sluice.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		if o.Kind == k {
			list = append(list, o)
		}
	}
	return list
}

// stalls returns the texts of the stalls that were reported.
func (s *scene) stalls() (texts []string) {
	for _, o := range s.of(sluice.KindStalled) {
		texts = append(texts, o.Err.Error())
	}
	return texts
}

// TestHangingHandler: a handler that does not return is reported after LeaseFor, again
// at doubling intervals, and its end is reported too.
func TestHangingHandler(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "one", "two", "three")
		release := make(chan struct{})
		_, end := s.consume("a", func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			<-release
			return nil
		}, sluice.Config{})
		time.Sleep(29 * time.Second)
		if got := s.stalls(); len(got) != 0 {
			s.t.Errorf("stalls before LeaseFor: %q", got)
		}
		time.Sleep(3 * time.Second)
		const want = "handler has not returned for 30s: batch of 3 events from 0; look for a lock or a call without a time limit"
		if got := s.stalls(); len(got) != 1 || got[0] != want {
			s.t.Errorf("stalls %q, want %q", got, want)
		}
		o := s.of(sluice.KindStalled)[0]
		if o.Partition != "0" || o.Epoch != 1 || o.To.Sequence != 0 || o.Events != 3 || o.Duration.Round(time.Second) != 30*time.Second {
			s.t.Errorf("stall %+v", o)
		}
		time.Sleep(5*time.Minute - 32*time.Second)
		if got := s.stalls(); len(got) != 4 { // after 30 s, 1, 2 and 4 min
			s.t.Errorf("%d stalls in five minutes: %q", len(got), got)
		}
		close(release)
		time.Sleep(2 * time.Second)
		if got := s.of(sluice.KindResumed); len(got) != 1 || got[0].Duration < 4*time.Minute+58*time.Second {
			s.t.Errorf("resumed %+v", got)
		}
		end()
	})
}

// TestStopReportsWhatItWaitsFor: a stop waits for a handler that hangs, and reports
// that after a few seconds.
func TestStopReportsWhatItWaitsFor(t *testing.T) {
	stage(t, 1, func(s *scene) {
		s.send("0", "one")
		release := make(chan struct{})
		c, end := s.consume("a", func(context.Context, *sluicetest.Tx, sluice.Batch) error {
			<-release
			return nil
		}, sluice.Config{})
		time.Sleep(10 * time.Second)
		go func() { _ = c.Stop(context.WithoutCancel(t.Context())) }()
		time.Sleep(7 * time.Second)
		if got := s.stalls(); len(got) != 1 || !strings.Contains(got[0], "handler has not returned for ") || !strings.Contains(got[0], "the consumer waits for it to stop") {
			s.t.Errorf("stalls %q", got)
		}
		close(release)
		synctest.Wait()
		end()
	})
}
