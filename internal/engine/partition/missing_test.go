package partition_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/engine/enginetest"
	"github.com/sluice-go/sluice/sluicetest"
)

// missing returns the errors by which a partition halted because its checkpoint is gone.
func (s *scene) missing() (list []string) {
	for _, o := range s.Observations() {
		if o.Kind == driver.KindHalted && errors.Is(o.Err, sluice.ErrMissing) {
			list = append(list, o.Err.Error())
		}
	}
	return list
}

const missingByProcess = "partition 0: the checkpoint is missing, but it existed (this process stored it at 2): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` at sequence 3"

// The lease and the checkpoint can be lost together: they lie in one blob.
func TestCheckpointGoneWithLease(t *testing.T) {
	stage(t, 1, func(s *scene) {
		lose := s.Store.Snapshot()
		s.Send("0", "a", "b", "c")
		_, end := s.Consume("a", sluice.Each(enginetest.Insert), sluice.Config{})
		defer end()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		lose()
		s.Leases.Lose()
		time.Sleep(2 * time.Minute)
		if got := s.missing(); len(got) != 1 || got[0] != missingByProcess || len(s.Rows()) != 0 {
			s.T.Errorf("halted by %q, rows %v", got, s.Rows())
		}
		topic := enginetest.Must(s.Hub.Describe(s.T.Context()))
		enginetest.Must(s.Store.Reset(s.T.Context(), enginetest.Group, "0", topic.Incarnation, sluice.Position{Sequence: 1}, driver.HowSet))
		time.Sleep(time.Minute)
		if got := s.Rows(); len(got) != 1 || got[0] != 2 {
			s.T.Errorf("after the checkpoint was set: rows %v", got)
		}
	})
}

// A new process knows from the lease that the partition had a checkpoint.
func TestCheckpointGoneBetweenRestarts(t *testing.T) {
	for name, atLeastOnce := range map[string]bool{"transactional": false, "at least once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, store, leases, h := sluicetest.NewHub(enginetest.Group, 1), &sluicetest.Store{}, enginetest.NewLedger(), &enginetest.Halts{}
				lose := store.Snapshot()
				hub.Append("0", sluicetest.Bodies("a", "b")...)
				if got := h.Read(t, hub, leases, store, atLeastOnce, sluice.Earliest()); len(got) != 2 || h.Halted != nil {
					t.Fatalf("applied %v, halted by %v", got, h.Halted)
				}
				lose()
				const want = "partition 0: the checkpoint is missing, but it existed (the lease records it): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` at the first event that is not done"
				for range 2 { // the claim of the first has left a checkpoint without a position
					h.Halted = nil
					if got := h.Read(t, hub, leases, store, atLeastOnce, sluice.Earliest()); got != nil || len(h.Halted) != 1 || h.Halted[0].Error() != want {
						t.Errorf("applied %v, halted by %v", got, h.Halted)
					}
				}
				h.Halted = nil
				if got := h.Read(t, hub, enginetest.NewLedger(), &sluicetest.Store{}, atLeastOnce, sluice.Earliest()); len(got) != 2 || h.Halted != nil {
					t.Errorf("a first start applied %v, halted by %v", got, h.Halted)
				}
			})
		})
	}
}

// A topic that was recreated has other events: what its leases say is of the earlier one.
func TestCheckpointOfRecreatedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, h := sluicetest.NewHub(enginetest.Group, 1), enginetest.NewLedger(), &enginetest.Halts{}
		hub.Append("0", sluicetest.Bodies("a")...)
		h.Read(t, hub, leases, &sluicetest.Store{}, false, sluice.Earliest())
		hub.Recreate()
		hub.Append("0", sluicetest.Bodies("a", "b")...)
		if got := h.Read(t, hub, leases, &sluicetest.Store{}, false, sluice.Earliest()); len(got) != 2 || h.Halted != nil {
			t.Errorf("applied %v, halted by %v", got, h.Halted)
		}
	})
}

// letterStore has dead letters, whatever is said of the checkpoint.
type letterStore struct {
	*sluicetest.Store
	floor int64
}

func (s letterStore) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	cp, err := s.Store.Claim(ctx, lease, incarnation)
	cp.DeadLettersBelow = s.floor
	return cp, err
}

func (s letterStore) Parked(context.Context, sluice.Group, string, string, int64) ([]driver.ParkedEvent, error) {
	return []driver.ParkedEvent{{ID: 1, Position: sluice.Position{Sequence: 3}}, {ID: 2, Position: sluice.Position{Sequence: 7}}}, nil
}

// Dead letters show that a partition had a checkpoint, also where neither process nor lease knows
// it.
func TestCheckpointGoneBesideDeadLetters(t *testing.T) {
	const want = "partition 0: the checkpoint is missing, but it existed (there is a dead letter of event 7): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` at sequence 8"
	for name, delivery := range map[string]sluice.Delivery{
		"transactional": sluice.Transactional(letterStore{&sluicetest.Store{}, 8}, sluice.Each(enginetest.Insert)),
		"batches":       sluice.Batches(letterStore{Store: &sluicetest.Store{}}, func(context.Context, sluice.Batch) error { return nil }, nil),
		"at least once": sluice.AtLeastOnce(letterStore{Store: &sluicetest.Store{}}, sluice.EventAsRecord, &enginetest.Warehouse{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, h := sluicetest.NewHub(enginetest.Group, 1), &enginetest.Halts{}
				hub.Append("0", sluicetest.Bodies("a")...)
				c := enginetest.Must(sluice.New(hub, &sluicetest.Leases{}, delivery, &sluice.Config{Observer: h}))
				go c.Run(t.Context())
				time.Sleep(time.Minute)
				if err := c.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if len(h.Halted) != 1 || h.Halted[0].Error() != want {
					t.Errorf("halted by %v", h.Halted)
				}
			})
		})
	}
}
