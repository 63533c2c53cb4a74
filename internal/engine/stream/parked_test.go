package stream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// stuckCheckpoints are checkpoints that stay at the start.
type stuckCheckpoints struct{ driver.CheckpointStore }

func (s stuckCheckpoints) Advance(ctx context.Context, lease driver.Lease, incarnation string, to driver.Position, done []driver.SequenceRange) error {
	if to.Sequence < 0 {
		return s.CheckpointStore.Advance(ctx, lease, incarnation, to, done)
	}
	return errors.New("no answer")
}

// An event whose dead letter an earlier owner has stored is not tried again, although the
// checkpoint was not stored after it.
func TestDeadLetterOfAnEarlierAssignment(t *testing.T) {
	stage(t, 1, func(s *scene) {
		t := s.T
		s.Send("0", "good", "reject 1", "good")
		w := enginetest.NewWarehouse(t)
		w.Says = func(e *sluice.Event, _ int) error {
			if e.Sequence == 1 {
				return driver.Reject(errors.New("no"))
			}
			return nil
		}
		first := enginetest.Must(sluice.New(s.Hub, s.Leases, sluice.AtLeastOnce(struct {
			driver.CheckpointStore
			driver.DeadLetterQueue
		}{stuckCheckpoints{s.Store}, s.Store}, sluice.EventAsRecord, w, nil), &sluice.Config{Observer: s}))
		ctx, kill := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- first.Run(ctx) }()
		time.Sleep(10 * time.Second)
		kill()
		<-ran
		if got := s.Letters(); len(got) != 1 || s.Position("0") >= 0 {
			t.Fatalf("%d dead letters and the checkpoint at %d, want 1 and the start", len(got), s.Position("0"))
		}
		_, stop := s.Pour(w, nil, sluice.Config{})
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := w.Tries(1); got != 1 {
			t.Errorf("%d attempts at the event that is a dead letter, want 1", got)
		}
		if got := enginetest.Sorted(w.Rows()); !slices.Equal(got, []int64{0, 0, 2, 2}) || s.Position("0") != 2 {
			t.Errorf("events %v were written, and the checkpoint is at %d, want 0 and 2 twice, and 2", got, s.Position("0"))
		}
	})
}
