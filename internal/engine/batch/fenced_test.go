package batch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// held holds up one owner's commits until it is released.
type held struct {
	owner   string
	release chan struct{}
}

func (h *held) Before(sluicetest.Op, sluice.Lease) error { return nil }

func (h *held) Commit(step driver.Step, apply func() error) error {
	if step.Lease.Owner == h.owner && step.From != driver.Unset {
		<-h.release
	}
	return apply()
}

// TestTooLateIsTold: an owner whose commit comes after its lease, and after
// another owner, is refused, and says so.
func TestTooLateIsTold(t *testing.T) {
	stage(t, 1, func(s *scene) {
		h := &held{owner: "a", release: make(chan struct{})}
		s.Store.Faults = h
		s.Send("0", "one", "two")
		_, endA := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
		time.Sleep(5 * time.Second)
		s.Leases.CutOff("a")
		_, endB := s.Consume("b", sluice.Each(enginetest.Insert), sluice.Config{})
		time.Sleep(time.Minute)
		if rows := s.Rows(); len(rows) != 2 {
			s.T.Errorf("%d rows by the successor, want 2", len(rows))
		}
		if n := s.Count(driver.KindFenced); n != 0 {
			s.T.Errorf("%d refusals before the commit", n)
		}
		close(h.release)
		synctest.Wait()
		if rows, n := s.Rows(), s.Count(driver.KindFenced); len(rows) != 2 || n != 1 {
			s.T.Errorf("%d rows, %d refusals observed, want 2 and 1", len(rows), n)
		}
		endA()
		endB()
	})
}
