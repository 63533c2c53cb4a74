package sluicetest

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// footprint is what the step that ended at an event has left to be seen.
type footprint struct {
	step int64
	driver.DedupState
}

// ReadDedup implements [driver.TxStore].
func (s *Store) ReadDedup(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
	if err := s.begin(ctx, OpSeen, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []driver.DedupState
	for _, f := range s.seen[place{group, partition}] {
		list = append(list, f.DedupState)
	}
	return list, nil
}

// tread keeps what a step has seen. The lock is held.
func (s *Store) tread(step driver.Step) {
	if s.Unsafe.LostSeen {
		return
	}
	at := place{step.Lease.Group, step.Lease.Partition}
	if !step.DedupSince.IsZero() {
		s.sweep(at, func(f footprint) bool { return f.At.Before(step.DedupSince) })
	}
	for _, origin := range step.DedupForgotten {
		s.sweep(at, func(f footprint) bool { return f.Origin == origin })
	}
	for _, seen := range step.Dedup {
		s.sweep(at, func(f footprint) bool { return f.Origin == seen.Origin && f.Top <= seen.Forget })
		if s.seen == nil {
			s.seen = make(map[place][]footprint)
		}
		s.seen[at] = append(s.seen[at], footprint{step.To.Sequence, seen})
	}
}

// sweep removes footprints. The lock is held.
func (s *Store) sweep(at place, gone func(footprint) bool) {
	if list, some := s.seen[at]; some {
		s.seen[at] = slices.DeleteFunc(list, gone)
	}
}
