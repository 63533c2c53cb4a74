package autoscale

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// MemoryStore is a [Store] in memory, for trials, dry runs and tests: its content is
// lost when the process ends. It is safe for concurrent use, and can be used in a
// bubble of testing/synctest.
type MemoryStore struct {
	mu       sync.Mutex
	memories map[string]*ResourceState
	outcomes map[string]Outcome
	records  map[string][]Record
	leases   map[string]leaseUntil
}

type leaseUntil struct {
	Lease
	expires time.Time
}

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore {
	return &MemoryStore{memories: map[string]*ResourceState{}, outcomes: map[string]Outcome{}, records: map[string][]Record{}, leases: map[string]leaseUntil{}}
}

// Load implements [Store].
func (s *MemoryStore) Load(_ context.Context, resource string) (*ResourceState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.memories[resource]; m != nil {
		return m.clone(), nil
	}
	return &ResourceState{Resource: resource}, nil
}

// Save implements [Store].
func (s *MemoryStore) Save(_ context.Context, m *ResourceState, records ...Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := 0
	if old := s.memories[m.Resource]; old != nil {
		version, _ = strconv.Atoi(old.Version)
		if old.Version != m.Version {
			return ErrConflict
		}
	} else if m.Version != "" {
		return ErrConflict
	}
	m.Version = strconv.Itoa(version + 1)
	s.memories[m.Resource] = m.clone()
	log := s.records[m.Resource]
	for _, r := range records {
		r.Stats = slices.Clone(r.Stats)
		i, found := slices.BinarySearchFunc(log, r.Sequence, func(r Record, n int64) int { return cmp.Compare(r.Sequence, n) })
		if found {
			log[i] = r
		} else {
			log = slices.Insert(log, i, r)
		}
	}
	s.records[m.Resource] = log
	return nil
}

// Outcome implements [Store].
func (s *MemoryStore) Outcome(_ context.Context, resource string) (*Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, found := s.outcomes[resource]; found {
		return &o, nil
	}
	return nil, nil
}

// SetOutcome implements [Store].
func (s *MemoryStore) SetOutcome(_ context.Context, resource string, o Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, found := s.outcomes[resource]; !found || o.Number > old.Number {
		s.outcomes[resource] = o
	}
	return nil
}

// Records implements [Store].
func (s *MemoryStore) Records(_ context.Context, resource string, since time.Time, limit int) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Record
	for _, r := range s.records[resource] {
		if !r.Time.Before(since) {
			r.Stats = slices.Clone(r.Stats)
			list = append(list, r)
		}
	}
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	return list, nil
}

// DeleteRecords implements [Store].
func (s *MemoryStore) DeleteRecords(_ context.Context, resource string, before time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[resource] = slices.DeleteFunc(s.records[resource], func(r Record) bool { return r.Time.Before(before) })
	return nil
}

// TakeLease implements [Store].
func (s *MemoryStore) TakeLease(_ context.Context, resource string, l Lease) (*Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if held := s.leases[resource]; held.Owner != l.Owner && held.expires.After(now) {
		return &held.Lease, nil
	}
	s.leases[resource] = leaseUntil{l, now.Add(l.Duration)}
	return nil, nil
}

// ReleaseLease implements [Store].
func (s *MemoryStore) ReleaseLease(_ context.Context, resource, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[resource].Owner == owner {
		delete(s.leases, resource)
	}
	return nil
}

// clone returns a deep copy.
func (m *ResourceState) clone() *ResourceState {
	c := *m
	c.Windows = maps.Clone(m.Windows)
	for name, w := range c.Windows {
		copied := *w
		copied.Values = slices.Clone(w.Values)
		c.Windows[name] = &copied
	}
	if m.Pending != nil {
		pending := *m.Pending
		c.Pending = &pending
	}
	return &c
}
