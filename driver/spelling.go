package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// GroupLister is implemented by a [LeaseStore] or a store of checkpoints that can say which groups
// it has. Without it, names that differ in case are always different groups.
type GroupLister interface {
	// Groups returns the groups of which the store has a lease or a checkpoint. It may leave out
	// those that are no [Group.Same] as the group.
	Groups(ctx context.Context, group Group) ([]Group, error)
}

// Same reports whether two groups are one for a log that ignores case in names ([Topic].AnyCase). A
// full stop at the end of the namespace, which DNS allows, does not count either.
func (g Group) Same(other Group) bool {
	return strings.EqualFold(strings.TrimSuffix(g.Namespace, "."), strings.TrimSuffix(other.Namespace, ".")) &&
		strings.EqualFold(g.Topic, other.Topic) && strings.EqualFold(g.Name, other.Name)
}

// Spelling returns the group under which stores have what belongs to a group of a log that ignores
// case: as they spell it if they have it, else in lower case, so that processes that begin together
// agree. The stores that are no [GroupLister] are not asked. The error is an [ErrRefused] if they
// have it in several spellings, which only somebody who knows both consumers can mend.
func Spelling(ctx context.Context, group Group, stores ...any) (Group, error) {
	known, err := Spellings(ctx, group, stores...)
	switch {
	case err != nil:
		return group, err
	case len(known) == 0:
		return group.folded(), nil
	case len(known) == 1:
		return known[0], nil
	}
	return group, &spellingError{known}
}

// Spellings returns the groups of the stores that are [Group.Same] as a group, in the order of
// their names.
func Spellings(ctx context.Context, group Group, stores ...any) (known []Group, err error) {
	for _, store := range stores {
		lister, is := store.(GroupLister)
		if !is {
			continue
		}
		groups, err := lister.Groups(ctx, group)
		if err != nil {
			return nil, fmt.Errorf("look for spellings of %v: %w", group, err)
		}
		for _, g := range groups {
			if g.Same(group) && !slices.Contains(known, g) {
				known = append(known, g)
			}
		}
	}
	slices.SortFunc(known, func(a, b Group) int { return strings.Compare(a.String(), b.String()) })
	return known, nil
}

// defaultGroup is the consumer group that every hub has, as Azure spells it.
const defaultGroup = "$Default"

// folded returns the spelling of a group that no store has.
func (g Group) folded() Group {
	folded := Group{Namespace: strings.ToLower(strings.TrimSuffix(g.Namespace, ".")), Topic: strings.ToLower(g.Topic), Name: strings.ToLower(g.Name)}
	if strings.EqualFold(g.Name, defaultGroup) {
		folded.Name = defaultGroup
	}
	return folded
}

// spellingError names the spellings of one group.
type spellingError struct{ groups []Group }

func (e *spellingError) Error() string {
	list := make([]string, len(e.groups))
	for i, g := range e.groups {
		list[i] = g.String()
	}
	return fmt.Sprintf("the store has checkpoints of %s, which are one consumer group, because Event Hubs ignores case in names: stop its consumers, keep the one whose positions are right, and remove the others from the store (docs/operations.md, Two spellings of one group)",
		strings.Join(list, " and "))
}

// Is reports whether target is [ErrRefused].
func (e *spellingError) Is(target error) bool { return target == ErrRefused }
