package partition_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// skipping is a log whose first readers leave out an event, without a word.
type skipping struct {
	*sluicetest.Hub
	number int64

	mu    sync.Mutex
	times int
}

func (s *skipping) Open(ctx context.Context, partition string, after sluice.Position, epoch int64) (driver.Reader, error) {
	r, err := s.Hub.Open(ctx, partition, after, epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == 0 || err != nil {
		return r, err
	}
	s.times--
	return &skippingReader{r, s.number}, nil
}

type skippingReader struct {
	driver.Reader
	number int64
}

func (r *skippingReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	events, err := r.Reader.Read(ctx, max)
	return slices.DeleteFunc(events, func(e *sluice.Event) bool { return e.Sequence == r.number }), err
}

// A number of the log for which the reader has neither an event nor a reason halts the partition:
// no event behind it takes effect, until the log returns it.
func TestNumberWithoutReason(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		for _, atLeastOnce := range []bool{false, true} {
			for _, number := range []int64{0, 4, 9} {
				t.Run(fmt.Sprintf("sparse %v, at least once %v, %d", sparse, atLeastOnce, number), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						hub := sluicetest.NewHub(enginetest.Group, 1)
						if sparse {
							hub.Sparse()
						}
						for range 11 {
							hub.Append("0", &sluice.Event{Body: []byte("x")})
						}
						observed := &enginetest.Halts{}
						log := &skipping{Hub: hub, number: number, times: 3}
						applied := observed.Read(t, log, enginetest.NewLedger(), &sluicetest.Store{}, atLeastOnce, sluice.Earliest())
						if want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(applied, want) {
							t.Errorf("events %v took effect in this order, want %v", applied, want)
						}
						if len(observed.Halted) == 0 {
							t.Fatalf("a reader that leaves out event %d does not halt the partition", number)
						}
						gone, is := errors.AsType[*driver.RetentionError](observed.Halted[0])
						if !is || !gone.Held || gone.After != number-1 || gone.First != number+1 {
							t.Errorf("halted by %v, want that event %d is missing", observed.Halted[0], number)
						}
					})
				})
			}
		}
	}
}
