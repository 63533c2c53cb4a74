package sluicetest

import (
	"context"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

var (
	_ driver.GroupLister = (*Leases)(nil)
	_ driver.GroupLister = (*Store)(nil)
)

// Groups implements [driver.GroupLister].
func (s *Leases) Groups(context.Context, sluice.Group) ([]sluice.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return groupsOf(s.leases), nil
}

// Groups implements [driver.GroupLister].
func (s *Store) Groups(context.Context, sluice.Group) ([]sluice.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return groupsOf(s.checkpoints), nil
}

func groupsOf[T any](kept map[place]T) (groups []sluice.Group) {
	seen := map[sluice.Group]bool{}
	for at := range kept {
		if !seen[at.group] {
			seen[at.group] = true
			groups = append(groups, at.group)
		}
	}
	return groups
}
