package stamp_test

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
	"github.com/sluice-go/sluice/internal/idset"
	"github.com/sluice-go/sluice/sluicetest"
)

// overtaken is a database in which another process of the same owner name and epoch commits
// before the next commit of a consumer.
type overtaken struct {
	*sluicetest.Store
	rival atomic.Pointer[func(lease sluice.Lease)]
}

func (o *overtaken) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	if step.From != step.To {
		if by := o.rival.Swap(nil); by != nil {
			(*by)(step.Lease)
		}
	}
	return o.Store.Commit(ctx, step, fn)
}

// cutHub is a log that fails one read: its events do not arrive.
type cutHub struct {
	*sluicetest.Hub
	cut atomic.Bool
}

func (h *cutHub) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := h.Hub.Open(ctx, partition, after, epoch)
	return &cutReader{r, h}, err
}

type cutReader struct {
	driver.Reader
	hub *cutHub
}

func (r *cutReader) Read(ctx context.Context, limit int) ([]*sluice.Event, error) {
	events, err := r.Reader.Read(ctx, limit)
	if r.hub.cut.CompareAndSwap(true, false) {
		return nil, errors.New("connection lost")
	}
	return events, err
}

// A process whose checkpoint was moved by another one of its owner name, past events that it
// has never read, knows the ids of these events.
func TestDuplicatesBehindAnotherOfTheOwnerName(t *testing.T) {
	stage(t, 1, func(s *scene) {
		ctx := s.T.Context()
		store, hub := &overtaken{Store: s.Store}, &cutHub{Hub: s.Hub}
		c := enginetest.Must(sluice.New(hub, s.Leases, sluice.Transactional(store, sluice.Each(func(_ context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
			return tx.Insert("rows", e.Sequence)
		})), &sluice.Config{Observer: s, StampsFrom: s.StampsFrom}))
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		s.Hub.Append("0", message(stampOf(5, 1, 4)))
		time.Sleep(time.Minute)
		by := func(lease sluice.Lease) {
			// It handles events 1 and 2. The consumer does not read event 2.
			hub.cut.Store(true)
			s.Hub.Append("0", message(stampOf(7, 1, 4)))
			step := driver.Step{Lease: lease, From: sluice.Position{}, To: enginetest.Must(s.Hub.Bounds(ctx, "0")).Last, Dedup: []driver.DedupState{{
				Origin: "flights@12ab/0", Epoch: 1, Low: 4, Top: 7, At: time.Now(), IDs: idset.Encode([]idset.ID{{Sequence: 6}, {Sequence: 7}}),
			}}}
			if err := s.Store.Commit(ctx, step, func(_ context.Context, tx *sluicetest.Tx) error {
				return errors.Join(tx.Insert("rows", int64(1)), tx.Insert("rows", int64(2)))
			}); err != nil {
				s.T.Error(err)
			}
		}
		store.rival.Store(&by)
		s.Hub.Append("0", message(stampOf(6, 1, 4)))
		time.Sleep(time.Minute)
		s.Hub.Append("0", message(stampOf(7, 1, 4)), message(stampOf(6, 1, 4)), message(stampOf(8, 1, 4)))
		time.Sleep(time.Minute)
		if err := errors.Join(c.Stop(ctx), <-ran); err != nil {
			s.T.Error(err)
		}
		if rows := s.Rows(); !slices.Equal(rows, []int64{0, 1, 2, 5}) {
			s.T.Errorf("handled %v, want 0, 1, 2 and 5: 3 and 4 are duplicates of 2 and 1", rows)
		}
	})
}
