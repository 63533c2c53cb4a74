package sluicetest

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice"
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
			if l := s.deadLetter(group, returned[i].ID); l != nil && l.Status == sluice.StatusRedrive {
				failed(l, &returned[i])
			}
		}
		s.deadLetters = slices.DeleteFunc(s.deadLetters, func(l *sluice.DeadLetter) bool {
			return l.Group == group && l.Status == sluice.StatusRedrive && slices.Contains(applied, l.ID)
		})
		return nil
	})
}

// Parked implements [driver.DeadLetterQueue].
func (s *Store) Parked(ctx context.Context, group sluice.Group, partition, incarnation string, after int64) ([]int64, error) {
	if err := s.begin(ctx, OpParked, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var numbers []int64
	for _, l := range s.deadLetters {
		if l.Group == group && l.Event.Partition == partition && l.Incarnation == incarnation && l.Event.Sequence > after {
			numbers = append(numbers, l.Event.Sequence)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Held implements [driver.DeadLetterQueue].
func (s *Store) Held(ctx context.Context, group sluice.Group, partition string) ([]string, error) {
	if err := s.begin(ctx, OpHeld, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, l := range s.deadLetters {
		if l.Group == group && l.Event.Partition == partition && l.Status != sluice.StatusDiscarded && l.Event.Key != "" {
			keys = append(keys, l.Event.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}
