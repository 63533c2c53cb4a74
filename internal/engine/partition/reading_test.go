package partition_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// An operator sets the checkpoint of a partition whose owner is idle. The owner finds that out
// without an event.
func TestCheckpointSetWhileIdle(t *testing.T) {
	for name, run := range map[string]func(s *scene, seen *atomic.Int64) (end func()){
		"transactional": func(s *scene, seen *atomic.Int64) func() {
			_, end := s.Consume("a", func(_ context.Context, _ *sluicetest.Tx, b sluice.Batch) error {
				seen.Add(int64(len(b.Events)))
				return nil
			}, sluice.Config{})
			return end
		},
		"at least once": func(s *scene, seen *atomic.Int64) func() {
			w := enginetest.Must(sluice.Workers(1, func(context.Context, *sluice.Event) error { seen.Add(1); return nil }))
			_, stop := s.Pour(w, nil, sluice.Config{})
			return func() { enginetest.Must(0, stop()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				var seen atomic.Int64
				s.Send("0", "a", "b", "c")
				defer run(s, &seen)()
				time.Sleep(5 * time.Minute)
				topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
				enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, driver.Origin, "set"))
				time.Sleep(time.Minute)
				if n := seen.Load(); n != 6 {
					s.T.Errorf("%d events were delivered, want 3, and the same 3 after the checkpoint was set", n)
				}
				if p := s.Position("0"); p != 2 {
					s.T.Errorf("the checkpoint is at %d, want 2", p)
				}
			})
		})
	}
}
