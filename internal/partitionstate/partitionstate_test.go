package partitionstate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/partitionstate"
)

func positionAt(n int64) sluice.Position { return sluice.Position{Sequence: n} }

func TestStateOfAPartition(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	s := partitionstate.New(&partitionstate.Config{Now: func() time.Time { return now }})
	observe := func(o driver.Observation) partitionstate.Partition {
		o.Partition, o.Owner, o.Epoch = "0", "here", 3
		s.Observe(o)
		return s.State().Partitions["0"]
	}
	broken := errors.New("broken")
	if p := observe(driver.Observation{Kind: driver.KindAcquired}); !p.Held || p.Owner != "here" || p.Epoch != 3 || p.Lag != -1 || p.Checkpoint != driver.Unset {
		t.Errorf("acquired: %+v", p)
	}
	observe(driver.Observation{Kind: driver.KindClaimed, To: positionAt(9)})
	observe(driver.Observation{Kind: driver.KindOpened, To: positionAt(9)})
	observe(driver.Observation{Kind: driver.KindFetched, To: positionAt(19), Events: 10, Lag: -1, Enqueued: now.Add(-time.Minute)})
	p := observe(driver.Observation{Kind: driver.KindFetched, To: positionAt(29), Events: 10, Lag: 40, Enqueued: now.Add(-time.Second)})
	if p.Lag != 40 || p.Fetched != positionAt(29) || p.Checkpoint != positionAt(9) || !p.Oldest.Equal(now.Add(-time.Minute)) || !p.Progress.IsZero() {
		t.Errorf("fetched: %+v", p)
	}
	began := now
	observe(driver.Observation{Kind: driver.KindFailed, Err: errors.New("first")})
	now = now.Add(time.Second)
	if p = observe(driver.Observation{Kind: driver.KindFailed, Err: broken}); p.Failure != (partitionstate.Failure{Began: began, Last: now, Err: broken}) {
		t.Errorf("failed: %+v", p.Failure)
	}
	observe(driver.Observation{Kind: driver.KindCommitted, To: positionAt(19), Events: 10, Lag: 30})
	now = now.Add(time.Second)
	if p = observe(driver.Observation{Kind: driver.KindRenewed}); p.Failure.Failing() || p.Lag != 30 || p.Rate != 2 || !p.Oldest.Equal(began.Add(-time.Second)) || !p.Renewed.Equal(now) {
		t.Errorf("committed: %+v", p)
	}
	if p = observe(driver.Observation{Kind: driver.KindHalted, Err: broken}); p.Stopped != broken {
		t.Errorf("stopped: %+v", p)
	}
	// What was read and is not done is read again, and nothing but that.
	if p = observe(driver.Observation{Kind: driver.KindOpened, To: positionAt(19)}); p.Stopped != broken || !p.Oldest.Equal(began.Add(-time.Minute)) {
		t.Errorf("opened again: %+v", p)
	}
	if p = observe(driver.Observation{Kind: driver.KindResumed}); p.Stopped != nil {
		t.Errorf("resumed: %+v", p)
	}
	// A failure is over when something is done; that the log is open does not show it while events
	// wait.
	observe(driver.Observation{Kind: driver.KindFailed, Err: broken})
	if p = observe(driver.Observation{Kind: driver.KindOpened, To: positionAt(19)}); !p.Failure.Failing() {
		t.Errorf("opened with a lag of %d: no failure", p.Lag)
	}
	if p = observe(driver.Observation{Kind: driver.KindCommitted, To: positionAt(49), Events: 30}); p.Failure.Failing() {
		t.Errorf("committed: %+v", p.Failure)
	}
	observe(driver.Observation{Kind: driver.KindFailed, Err: broken})
	if p = observe(driver.Observation{Kind: driver.KindOpened, To: positionAt(49)}); p.Failure.Failing() {
		t.Errorf("opened with nothing that waits: %+v", p.Failure)
	}
	// What holds it up, since when; a report of something shorter does not change since when.
	observe(driver.Observation{Kind: driver.KindStalled, Duration: time.Minute, Err: errors.New("handler")})
	p = observe(driver.Observation{Kind: driver.KindStalled, Duration: time.Second, Err: broken})
	if p.Stall != (partitionstate.Stall{Began: now.Add(-time.Minute), Err: broken}) || !p.Stall.Stalled() {
		t.Errorf("stalled: %+v", p.Stall)
	}
	if p = observe(driver.Observation{Kind: driver.KindResumed}); p.Stall.Stalled() {
		t.Errorf("resumed: %+v", p.Stall)
	}
	observe(driver.Observation{Kind: driver.KindStalled, Duration: time.Minute, Err: broken})
	observe(driver.Observation{Kind: driver.KindFailed, Err: broken})
	p = observe(driver.Observation{Kind: driver.KindLost, Err: broken})
	if p.Held || p.Lag != -1 || p.Failure.Failing() || p.Stall.Stalled() || p.Epoch != 3 || p.Acquired.IsZero() {
		t.Errorf("lost: %+v", p)
	}
	if state := s.State(); state.Failure.Err != broken || state.Lag != -1 || state.Totals.Partitions != 0 {
		t.Errorf("after the loss, whose failure is not over: %+v", state)
	}
	if p = observe(driver.Observation{Kind: driver.KindWritten, To: positionAt(29), InFlight: 7, Lag: 5}); p.Held || p.Lag != -1 || p.InFlight != 0 {
		t.Errorf("what is observed late counts: %+v", p)
	}
	s.Observe(driver.Observation{Kind: driver.KindListed})
	if state := s.State(); state.Failure.Failing() || !state.Answered {
		t.Errorf("after the lease store has answered: %+v", state)
	}
}
