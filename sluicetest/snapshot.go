package sluicetest

import (
	"maps"
	"slices"
)

// Snapshot copies the content of the database. The function that it returns restores that, as does
// a failover to a replica that lags: later commits are lost, and so are the transactions in
// progress.
func (s *Store) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.content()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		claims := s.checkpoints
		c := kept.content() // it may be restored more than once
		s.checkpoints, s.tables, s.dedup, s.deadLetters = c.checkpoints, c.tables, c.dedup, c.deadLetters
		s.lastID, s.copied = c.lastID, c.copied
		for at, c := range s.checkpoints {
			c.claim = claims[at].claim + 1
		}
	}
}

// content is a copy of what is stored. The lock is held.
func (s *Store) content() *Store {
	c := &Store{checkpoints: map[place]*checkpoint{}, tables: map[string]*table{}, dedup: map[place][]dedupEntry{}, lastID: s.lastID, copied: maps.Clone(s.copied)}
	for at, p := range s.checkpoints {
		c.checkpoints[at] = &checkpoint{Checkpoint: p.value(), claim: p.claim}
	}
	for name, t := range s.tables {
		c.tables[name] = &table{rows: slices.Clone(t.rows), keys: maps.Clone(t.keys)}
	}
	for at, list := range s.dedup {
		c.dedup[at] = slices.Clone(list)
	}
	for _, l := range s.deadLetters {
		letter := *l
		letter.Event = *clone(&l.Event)
		c.deadLetters = append(c.deadLetters, &letter)
	}
	return c
}
