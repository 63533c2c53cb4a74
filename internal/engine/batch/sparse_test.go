package batch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// The event that ends the process is found, although a batch spans more numbers than MaxBatch.
func TestSparseSuspect(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		const apart = 3000 // so a batch of twenty events spans 60,000 numbers
		for range 20 {
			s.SendSparse("good" + strings.Repeat(" -", apart-1))
		}
		deaths := 0
		for n := range 20 {
			if !s.life(n, func(b sluice.Batch) bool {
				return slices.ContainsFunc(b.Events, func(e *sluice.Event) bool { return e.Sequence == 5*apart })
			}) {
				break
			}
			deaths++
		}
		if letters := s.Letters(); deaths > 5 || len(letters) != 1 || letters[0].Event.Sequence != 5*apart || len(s.Rows()) != 19 {
			t.Errorf("%d deaths, %d rows, dead letters %+v", deaths, len(s.Rows()), letters)
		}
	})
}

// lateEvent is a log that returns a marker alone, and the event after it 20 seconds later.
type lateEvent struct{ driver.Source }

type lateReader struct {
	driver.Reader
	opened time.Time
}

func (l lateEvent) Open(ctx context.Context, partition string, after driver.Position, epoch int64) (driver.Reader, error) {
	r, err := l.Source.Open(ctx, partition, after, epoch)
	return &lateReader{r, time.Now()}, err
}

func (l *lateReader) Read(ctx context.Context, max int) ([]*sluice.Event, error) {
	events, err := l.Reader.Read(ctx, min(max, 1))
	if err == nil && !events[0].Control {
		select {
		case <-time.After(20*time.Second - time.Since(l.opened)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return events, err
}

// The attempts at an event that are on record stay there, although numbers before it are passed.
func TestSparseKeepsAttempts(t *testing.T) {
	sparse(t, func(s *scene) {
		t := s.T
		s.SendSparse("- - - - bad") // the hub marks number 3 too
		tries := 0
		for n := range 3 {
			var source driver.Source = s.Hub
			if n > 0 {
				source = lateEvent{s.Hub}
			}
			_, end := s.Run(source, sluice.Transactional(s.Store, sluice.Each(func(ctx context.Context, tx *sluicetest.Tx, e *sluice.Event) error {
				tries++
				return enginetest.Insert(ctx, tx, e)
			})), sluice.Config{Owner: fmt.Sprint("a", n), RetryMin: time.Hour, RetryMax: time.Hour})
			time.Sleep(time.Minute)
			end()
			if got := s.attempt("0"); n == 0 && (got.Attempts != 1 || s.Position("0") != -1) {
				t.Fatalf("on record %+v at %d, want one attempt before any number was passed", got, s.Position("0"))
			}
		}
		if tries != 3 || len(s.Letters()) != 1 {
			t.Errorf("%d tries, %d dead letters", tries, len(s.Letters()))
		}
	})
}
