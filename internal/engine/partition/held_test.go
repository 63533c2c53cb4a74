package partition_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// holdingLog is a log whose numbers after the last one that can be read are held back.
type holdingLog struct {
	driver.Source
	count atomic.Int64 // so many
}

func (h *holdingLog) Bounds(ctx context.Context, partition string) (driver.Bounds, error) {
	b, err := h.Source.Bounds(ctx, partition)
	if n := h.count.Load(); n > 0 {
		b.Held = &driver.HeldBack{Last: b.Last.Sequence + n, What: "an open transaction has held back events", Check: "abort it"}
	}
	return b, err
}

// What the log holds back is lag, and is reported as a stall until it is released. While events
// come, it is none.
func TestHeldBack(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("a b -")
		log := &holdingLog{Source: s.Hub}
		log.count.Store(7)
		_, end := s.Run(log, sluice.Transactional(s.Store, enginetest.InsertBatch), sluice.Config{})
		defer end()
		for range 10 { // the end moves: other transactions end
			time.Sleep(10 * time.Second)
			s.SendSparse("c -")
		}
		time.Sleep(10 * time.Second)
		if got := s.Observations(driver.KindStalled); len(got) > 0 {
			t.Fatalf("reported %v while events came", got)
		}
		if _, _, lag := s.Moved(); lag < 5 || lag > 7 { // the end was asked for before the last two numbers came
			t.Errorf("the lag is %d, want 5 to 7", lag)
		}
		time.Sleep(time.Minute)
		stalls := s.Observations(driver.KindStalled)
		if len(stalls) == 0 || !strings.HasPrefix(stalls[0].Err.Error(), "an open transaction has held back events for 3") || !strings.HasSuffix(stalls[0].Err.Error(), "; abort it") || len(s.Observations(driver.KindResumed)) > 0 {
			t.Fatalf("reported %v", stalls)
		}
		log.count.Store(0)
		time.Sleep(10 * time.Second)
		if got := s.Observations(driver.KindResumed); len(got) != 1 {
			t.Errorf("reported %v after the release", got)
		}
		if got := s.Observations(driver.KindFailed); len(got) > 0 {
			t.Errorf("reported %v", got)
		}
	})
}
