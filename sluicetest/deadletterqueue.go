package sluicetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// Park implements [driver.DeadLetterQueue].
func (s *Store) Park(ctx context.Context, deadLetters []sluice.DeadLetter) error {
	var about sluice.Lease // the first one's place
	if len(deadLetters) > 0 {
		about.Group, about.Partition = deadLetters[0].Group, deadLetters[0].Event.Partition
	}
	if err := s.begin(ctx, OpPark, about); err != nil {
		return err
	}
	copies := make([]*sluice.DeadLetter, len(deadLetters))
	for i := range deadLetters {
		copies[i] = copyDeadLetter(&deadLetters[i])
	}
	return s.write(OpPark, about, func() error {
		if s.Unsafe.LostDeadLetters {
			return nil
		}
		for _, l := range copies {
			s.put(l)
		}
		return nil
	})
}

// Settle implements [driver.DeadLetterQueue].
func (s *Store) Settle(ctx context.Context, group sluice.Group, applied []int64, returned []sluice.DeadLetter) error {
	about := sluice.Lease{Group: group}
	if err := s.begin(ctx, OpSettle, about); err != nil {
		return err
	}
	applied, returned = slices.Clone(applied), slices.Clone(returned)
	return s.write(OpSettle, about, func() error {
		for i := range returned {
			if l := s.deadLetter(group, returned[i].ID); l != nil && l.Status == sluice.StatusRetry {
				failed(l, &returned[i])
			}
		}
		s.deadLetters = slices.DeleteFunc(s.deadLetters, func(l *sluice.DeadLetter) bool {
			return l.Group == group && l.Status == sluice.StatusRetry && slices.Contains(applied, l.ID)
		})
		return nil
	})
}

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]driver.ParkedEvent, error) {
	if err := s.begin(ctx, OpParked, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var parked []driver.ParkedEvent
	for _, l := range s.deadLetters {
		if l.Group == group && l.Event.Partition == partition && l.Incarnation == incarnation && l.Event.Sequence > after {
			parked = append(parked, driver.ParkedEvent{ID: l.ID, Position: l.Event.Position()})
		}
	}
	slices.SortFunc(parked, func(a, b driver.ParkedEvent) int { return cmp.Compare(a.Position.Sequence, b.Position.Sequence) })
	return parked, nil
}

// SetAside implements [driver.DeadLetterQueue] and [driver.TxStore].
func (s *Store) SetAside(ctx context.Context, group sluice.Group, partition, incarnation string, lost []driver.ParkedEvent) error {
	about := sluice.Lease{Group: group, Partition: partition}
	if err := s.begin(ctx, OpSetAside, about); err != nil {
		return err
	}
	lost = slices.Clone(lost)
	return s.write(OpSetAside, about, func() error {
		there := map[int64]bool{}
		for _, l := range s.deadLetters {
			if l.Group == group && l.Event.Partition == partition && l.Incarnation == incarnation {
				there[l.Event.Sequence] = true
			}
		}
		s.deadLetters = slices.DeleteFunc(s.deadLetters, func(l *sluice.DeadLetter) bool {
			if l.Group != group || !slices.ContainsFunc(lost, func(p driver.ParkedEvent) bool { return p.ID == l.ID }) {
				return false
			}
			double := l.Incarnation != incarnation && there[l.Event.Sequence]
			l.Incarnation = incarnation
			return double
		})
		return nil
	})
}

// Held implements [driver.DeadLetterQueue].
func (s *Store) Held(ctx context.Context, group sluice.Group, partition string, except []int64) ([]driver.HeldKey, error) {
	if err := s.begin(ctx, OpHeld, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []driver.HeldKey
	for _, l := range s.deadLetters {
		e := &l.Event
		if l.Group != group || e.Partition != partition || l.Status == sluice.StatusDiscarded || e.Key == "" || slices.Contains(except, l.ID) {
			continue
		}
		i := slices.IndexFunc(keys, func(k driver.HeldKey) bool { return k.Key == e.Key && k.Incarnation == l.Incarnation })
		if i < 0 {
			keys = append(keys, driver.HeldKey{Key: e.Key, Incarnation: l.Incarnation, First: e.Sequence})
		} else {
			keys[i].First = min(keys[i].First, e.Sequence)
		}
	}
	return keys, nil
}
