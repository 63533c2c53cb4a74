package sluicetest

import (
	"context"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// dedupEntry is the deduplication state of the step that ended at the event numbered step.
type dedupEntry struct {
	step int64
	driver.DedupState
}

// ReadDedup implements [driver.TxStore].
func (s *Store) ReadDedup(ctx context.Context, group sluice.Group, partition string) ([]driver.DedupState, error) {
	if err := s.begin(ctx, OpReadDedup, sluice.Lease{Group: group, Partition: partition}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []driver.DedupState
	for _, f := range s.dedup[place{group, partition}] {
		list = append(list, f.DedupState)
	}
	return list, nil
}

// storeDedup stores the deduplication state of a step. The lock is held.
func (s *Store) storeDedup(step driver.Step) {
	if s.Unsafe.LostDedup {
		return
	}
	at := place{step.Lease.Group, step.Lease.Partition}
	if !step.DedupSince.IsZero() {
		s.removeDedup(at, func(f dedupEntry) bool { return f.At.Before(step.DedupSince) })
	}
	if len(step.DedupForgotten) > 0 {
		forgotten := make(map[string]bool, len(step.DedupForgotten))
		for _, origin := range step.DedupForgotten {
			forgotten[origin] = true
		}
		s.removeDedup(at, func(f dedupEntry) bool { return forgotten[f.Origin] })
	}
	for _, seen := range step.Dedup {
		s.removeDedup(at, func(f dedupEntry) bool { return f.Origin == seen.Origin && f.Top <= seen.Forget })
		if s.dedup == nil {
			s.dedup = make(map[place][]dedupEntry)
		}
		s.dedup[at] = append(s.dedup[at], dedupEntry{step.To.Sequence, seen})
	}
}

// removeDedup removes state. The lock is held.
func (s *Store) removeDedup(at place, gone func(dedupEntry) bool) {
	if list, some := s.dedup[at]; some {
		s.dedup[at] = slices.DeleteFunc(list, gone)
	}
}
