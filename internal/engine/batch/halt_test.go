package batch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// pastStore is a database to which a handler can commit past the store.
type pastStore struct {
	*sluicetest.Store
	past  atomic.Bool  // the handler has committed
	fails atomic.Int64 // how many records of attempts fail
	calls atomic.Int64 // of the handler
}

func (p *pastStore) Commit(ctx context.Context, step driver.Step, fn func(context.Context, *sluicetest.Tx) error) error {
	p.past.Store(false)
	var result error
	err := p.Store.Commit(ctx, step, func(ctx context.Context, tx *sluicetest.Tx) error {
		if fn != nil {
			result = fn(ctx, tx)
		}
		if p.past.Load() {
			return driver.ErrHandlerEnded
		}
		return result
	})
	if !p.past.Load() {
		return err
	}
	stay := driver.Step{Lease: step.Lease, From: step.From, To: step.From}
	err = p.Store.Commit(ctx, stay, func(_ context.Context, tx *sluicetest.Tx) error { return tx.Insert("past", step.From.Sequence+1) })
	return errors.Join(err, fmt.Errorf("%w, and returned: %v", driver.ErrHandlerEnded, result))
}

func (p *pastStore) RecordAttempt(ctx context.Context, lease driver.Lease, at driver.Position, attempt driver.AttemptRecord) error {
	if p.fails.Add(-1) >= 0 {
		return errors.New("the database is down")
	}
	return p.Store.RecordAttempt(ctx, lease, at, attempt)
}

// ending is a handler that commits past the store where an event says so.
func (p *pastStore) ending(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
	for _, e := range b.Events {
		if string(e.Body) == "commit" {
			p.calls.Add(1)
			p.past.Store(true)
		}
		if err := enginetest.Insert(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) halts(p *pastStore, owner string, delivery sluice.Delivery) (end func()) {
	_, end = s.Run(s.Hub, delivery, sluice.Config{Owner: owner, Observer: s, StampsFrom: s.StampsFrom})
	return end
}

// wantHalted checks that the partition is halted once at sequence 2, and that no event was passed
// or became a dead letter.
func (s *scene) wantHalted(halts int, says string) {
	s.T.Helper()
	stopped := s.Observations(driver.KindHalted)
	if len(stopped) != halts {
		s.T.Fatalf("halted %d times, want %d", len(stopped), halts)
	}
	for _, o := range stopped {
		if !errors.Is(o.Err, sluice.ErrHandlerEnded) || o.Err.Error() != says {
			s.T.Errorf("halted with\n%v\nwant\n%s", o.Err, says)
		}
	}
	if at, letters := s.Position("0"), s.Letters(); at != 1 || len(letters) > 0 {
		s.T.Errorf("checkpoint at %d, dead letters %v; want 1 and none", at, letters)
	}
	if n := s.Count(driver.KindUnknown) + s.Count(driver.KindRetried) + s.Count(driver.KindFenced); n > 0 {
		s.T.Errorf("%d attempts, unknown outcomes and fences were reported", n)
	}
}

const (
	haltedBy = "partition 0: events 2 to 4: handler ended its transaction, and returned: %s: some of its writes may be committed, and the checkpoint has not moved: "
	goOn     = "correct the handler, check which of the events took effect, then continue with `sluice checkpoints set` at sequence 2"
)

// A handler that ends its transaction halts the partition, whatever it returns. Neither time nor
// another owner has it do that again: only an operator who sets the checkpoint.
func TestHandlerEndsTransaction(t *testing.T) {
	for last, returned := range map[string]string{
		"good": "<nil>", "bad": "bad", "reject": "reject", "panic": "panic: panic",
	} {
		t.Run(last, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				p := &pastStore{Store: s.Store}
				p.fails.Store(3)
				s.Send("0", "good", "good")
				end := s.halts(p, "before", sluice.Transactional(p, p.ending))
				time.Sleep(time.Minute)
				s.Send("0", "good", "commit", last)
				time.Sleep(5 * time.Minute)
				s.wantHalted(1, fmt.Sprintf(haltedBy+goOn, returned))
				end()
				end = s.halts(p, "after", sluice.Transactional(p, p.ending))
				time.Sleep(5 * time.Minute)
				s.wantHalted(2, fmt.Sprintf(haltedBy+goOn, returned))
				if n := p.calls.Load(); n != 1 {
					s.T.Errorf("the handler has ended %d transactions, want 1", n)
				}
				topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
				enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 3}, driver.HowSet))
				time.Sleep(time.Minute)
				if at := s.Position("0"); at != 4 {
					s.T.Errorf("went on to %d, want 4", at)
				}
				end()
			})
		})
	}
}

// A partition that is halted is halted whatever the delivery.
func TestHaltedForEachDelivery(t *testing.T) {
	for name, delivery := range map[string]func(s *scene) sluice.Delivery{
		"Batches": func(s *scene) sluice.Delivery {
			return sluice.Batches(s.Store, func(context.Context, sluice.Batch) error { s.T.Error("handled"); return nil }, nil)
		},
		"AtLeastOnce": func(s *scene) sluice.Delivery {
			return sluice.AtLeastOnce(s.Store, func(_ context.Context, e *sluice.Event) ([]*sluice.Event, error) {
				s.T.Error("handled")
				return []*sluice.Event{e}, nil
			}, enginetest.Must(sluice.Workers(1, func(context.Context, *sluice.Event) error { return nil })), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, 1, func(s *scene) {
				p := &pastStore{Store: s.Store}
				s.Send("0", "good", "good")
				end := s.halts(p, "before", sluice.Transactional(p, p.ending))
				time.Sleep(time.Minute)
				s.Send("0", "good", "commit", "good")
				time.Sleep(time.Minute)
				end()
				end = s.halts(p, "after", delivery(s))
				time.Sleep(time.Minute)
				s.wantHalted(2, fmt.Sprintf(haltedBy+goOn, "<nil>"))
				end()
			})
		})
	}
}

// A redrive that ends its transaction halts the partition too: the dead letter stays.
func TestRedriveEndsTransaction(t *testing.T) {
	stage(t, 1, func(s *scene) {
		p := &pastStore{Store: s.Store}
		s.Send("0", "reject", "good")
		ended := func(ctx context.Context, tx *sluicetest.Tx, b sluice.Batch) error {
			if b.Redriven {
				p.calls.Add(1)
				p.past.Store(true)
				return nil
			}
			return sluice.Each(enginetest.Insert)(ctx, tx, b)
		}
		end := s.halts(p, "a", sluice.Transactional(p, ended))
		time.Sleep(time.Minute)
		s.RedriveAll()
		time.Sleep(5 * time.Minute)
		end()
		stopped := s.Observations(driver.KindHalted)
		if len(stopped) != 1 || !errors.Is(stopped[0].Err, sluice.ErrHandlerEnded) || p.calls.Load() != 1 {
			s.T.Errorf("halts %v after %d redrives, want one of each", stopped, p.calls.Load())
		}
		if letters := s.Letters(sluice.StatusRetry); len(letters) != 1 || s.Position("0") != 1 {
			s.T.Errorf("dead letters %v, checkpoint at %d", letters, s.Position("0"))
		}
	})
}
