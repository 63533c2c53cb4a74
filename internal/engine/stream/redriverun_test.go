package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
)

// At least once, as many as the sink takes are redriven at a time, and their events are read from
// the log in few runs.
func TestStreamRedriveRuns(t *testing.T) {
	for name, limit := range map[string]int{"stored body": 0, "body read from the log": -1} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				const letters = 2000
				var mended atomic.Bool
				var written atomic.Int64
				sink := enginetest.Must(sluice.Workers(16, func(context.Context, *sluice.Event) error {
					if !mended.Load() {
						return driver.Reject(errors.New("no"))
					}
					written.Add(1)
					return nil
				}))
				s.Send("0", slices.Repeat([]string{"x"}, letters)...)
				hub := &enginetest.CountsOpens{Hub: s.Hub}
				_, end := s.Run(hub, sluice.AtLeastOnce(s.Store, sluice.EventAsRecord, sink, nil), sluice.Config{BodyLimit: limit})
				time.Sleep(time.Minute)
				if n := len(s.Letters()); n != letters {
					s.T.Fatalf("%d dead letters", n)
				}
				mended.Store(true)
				hub.N.Store(0)
				s.RedriveAll()
				began := time.Now()
				for len(s.Letters()) > 0 && time.Since(began) < 10*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				end()
				s.T.Logf("%v, %d opens", took, hub.N.Load())
				if n := written.Load(); n != letters || took > 10*time.Second || hub.N.Load() > 100 {
					s.T.Errorf("%d of %d written after %v, with %d opens", n, letters, took, hub.N.Load())
				}
			})
		})
	}
}
