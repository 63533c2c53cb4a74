package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/sluicetest"
)

// missing returns the errors by which a partition halted because its checkpoint is gone.
func (s *scene) missing() (list []string) {
	for _, o := range s.of() {
		if o.Kind == driver.KindStopped && errors.Is(o.Err, sluice.ErrMissing) {
			list = append(list, o.Err.Error())
		}
	}
	return list
}

const missingByProcess = "partition 0: the checkpoint is missing, but it existed (this process stored it at 2): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` at sequence 3"

// The lease and the checkpoint can be lost together: they lie in one blob.
func TestCheckpointGoneWithLease(t *testing.T) {
	stage(t, 1, func(s *scene) {
		lose := s.store.Snapshot()
		s.send("0", "a", "b", "c")
		_, end := s.consume("a", sluice.Each(insert), sluice.Config{})
		defer end()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		lose()
		s.leases.lose()
		time.Sleep(2 * time.Minute)
		if got := s.missing(); len(got) != 1 || got[0] != missingByProcess || len(s.rows()) != 0 {
			s.t.Errorf("halted by %q, rows %v", got, s.rows())
		}
		topic := must(s.hub.Describe(s.t.Context()))
		must(s.store.Reset(s.t.Context(), group, "0", topic.Incarnation, sluice.Position{Sequence: 1}, driver.HowSet))
		time.Sleep(time.Minute)
		if got := s.rows(); len(got) != 1 || got[0] != 2 {
			s.t.Errorf("after the checkpoint was set: rows %v", got)
		}
	})
}

// A new process knows from the lease that the partition had a checkpoint.
func TestCheckpointGoneBetweenRestarts(t *testing.T) {
	for name, atLeastOnce := range map[string]bool{"transactional": false, "at least once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, store, leases, h := sluicetest.NewHub(group, 1), &sluicetest.Store{}, newLedger(), &halts{}
				lose := store.Snapshot()
				hub.Append("0", sluicetest.Bodies("a", "b")...)
				if got := h.read(t, hub, leases, store, atLeastOnce, sluice.Earliest()); len(got) != 2 || h.halted != nil {
					t.Fatalf("applied %v, halted by %v", got, h.halted)
				}
				lose()
				const want = "partition 0: the checkpoint is missing, but it existed (the lease records it): starting again would repeat or skip events: find what removed it, then restore it, or continue with `sluice checkpoints set` at the first event that is not done"
				for range 2 { // the claim of the first has left a checkpoint without a position
					h.halted = nil
					if got := h.read(t, hub, leases, store, atLeastOnce, sluice.Earliest()); got != nil || len(h.halted) != 1 || h.halted[0].Error() != want {
						t.Errorf("applied %v, halted by %v", got, h.halted)
					}
				}
				h.halted = nil
				if got := h.read(t, hub, newLedger(), &sluicetest.Store{}, atLeastOnce, sluice.Earliest()); len(got) != 2 || h.halted != nil {
					t.Errorf("a first start applied %v, halted by %v", got, h.halted)
				}
			})
		})
	}
}

// A topic that was recreated has other events: what its leases say is of the earlier one.
func TestCheckpointOfRecreatedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, leases, h := sluicetest.NewHub(group, 1), newLedger(), &halts{}
		hub.Append("0", sluicetest.Bodies("a")...)
		h.read(t, hub, leases, &sluicetest.Store{}, false, sluice.Earliest())
		hub.Recreate()
		hub.Append("0", sluicetest.Bodies("a", "b")...)
		if got := h.read(t, hub, leases, &sluicetest.Store{}, false, sluice.Earliest()); len(got) != 2 || h.halted != nil {
			t.Errorf("applied %v, halted by %v", got, h.halted)
		}
	})
}

// letterStore has dead letters, whatever is said of the checkpoint.
type letterStore struct {
	*sluicetest.Store
	below int64
}

func (s letterStore) Claim(ctx context.Context, lease sluice.Lease, incarnation string) (sluice.Checkpoint, error) {
	cp, err := s.Store.Claim(ctx, lease, incarnation)
	cp.DeadLettersBelow = s.below
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
		"transactional": sluice.Transactional(letterStore{&sluicetest.Store{}, 8}, sluice.Each(insert)),
		"batches":       sluice.Batches(letterStore{Store: &sluicetest.Store{}}, func(context.Context, sluice.Batch) error { return nil }, nil),
		"at least once": sluice.AtLeastOnce(letterStore{Store: &sluicetest.Store{}}, sluice.EventAsRecord, &warehouse{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, h := sluicetest.NewHub(group, 1), &halts{}
				hub.Append("0", sluicetest.Bodies("a")...)
				c := must(sluice.New(hub, &sluicetest.Leases{}, delivery, &sluice.Config{Observer: h}))
				go c.Run(t.Context())
				time.Sleep(time.Minute)
				if err := c.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if len(h.halted) != 1 || h.halted[0].Error() != want {
					t.Errorf("halted by %v", h.halted)
				}
			})
		})
	}
}
