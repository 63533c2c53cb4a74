package sluicetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/sqlshape"
)

// Tx is a transaction of a [Store]. What is inserted through it takes effect
// at the commit, or not at all. Rows are kept as they are: pass values, not
// pointers to what changes later. It is safe for concurrent use.
type Tx struct {
	store *Store
	lease sluice.Lease

	mu     sync.Mutex
	ended  bool
	broken error // an outage during the transaction
	writes []write
	ran    sqlshape.Log // a table's name for each insert that succeeded
}

// StatementError is what a handler returns to have [Store] fail as a database that refuses a
// statement about a table for a reason that may be every event's: the table is missing, or may not
// be written to. The engine then looks for an event that inserts into that table.
type StatementError struct {
	Table string
	Err   error
}

func (e *StatementError) Error() string { return fmt.Sprintf("table %s: %v", e.Table, e.Err) }

// Unwrap returns the cause.
func (e *StatementError) Unwrap() error { return e.Err }

// handlerError is what a handler's error means.
func handlerError(err error) error {
	failed := &driver.HandlerError{Err: err}
	if refused, ok := errors.AsType[*StatementError](err); ok && !errors.Is(err, driver.ErrRejected) {
		failed.Statements = []string{sqlshape.Words(refused.Table)}
	}
	return failed
}

// write is a row to be inserted.
type write struct {
	table, key string
	unique     bool
	row        any
}

// table holds committed rows, and the keys of those inserted as unique.
type table struct {
	rows []any
	keys map[string]bool
}

// Insert writes a row to a table, which need not exist before.
func (tx *Tx) Insert(table string, row any) error {
	return tx.insert(write{table: table, row: row})
}

// InsertUnique writes a row under a key that no other row of the table may
// have; if one has it, it returns an error like a database's about a violated
// constraint. The key is checked again at the commit.
func (tx *Tx) InsertUnique(table, key string, row any) error {
	return tx.insert(write{table: table, key: key, unique: true, row: row})
}

func (tx *Tx) insert(w write) error {
	if tx.store.Faults != nil {
		if err := tx.store.Faults.Before(OpInsert, tx.lease); err != nil {
			tx.mu.Lock()
			defer tx.mu.Unlock()
			tx.broken = err
			return err
		}
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	switch {
	case tx.ended:
		return errors.New("insert: the transaction is over")
	case tx.broken != nil:
		return tx.broken
	}
	if w.unique {
		for _, o := range tx.writes {
			if o.unique && o.table == w.table && o.key == w.key {
				return violation(w)
			}
		}
		if tx.store.taken(w) {
			return violation(w)
		}
	}
	tx.writes = append(tx.writes, w)
	tx.ran.Note(w.table)
	return nil
}

// end makes further writes fail and returns the outage that broke the
// transaction, if one did.
func (tx *Tx) end() error {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.ended = true
	return tx.broken
}

func violation(w write) error {
	return fmt.Errorf("insert into %s: duplicate key %q violates the unique constraint", w.table, w.key)
}

// taken reports whether a committed row has the key.
func (s *Store) taken(w write) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[w.table]
	return t != nil && t.keys[w.key]
}

// violated returns the error of the first row whose key another row has. The lock is held.
func (s *Store) violated(writes []write) error {
	type key struct{ table, key string }
	own := make(map[key]bool)
	for _, w := range writes {
		if !w.unique {
			continue
		}
		t, k := s.tables[w.table], key{w.table, w.key}
		if own[k] || t != nil && t.keys[w.key] {
			return violation(w)
		}
		own[k] = true
	}
	return nil
}

// insert adds the rows to their tables: all of them, or none. The lock is held.
func (s *Store) insert(writes []write) error {
	if err := s.violated(writes); err != nil {
		return err
	}
	for _, w := range writes {
		t := s.tables[w.table]
		if t == nil {
			if s.tables == nil {
				s.tables = make(map[string]*table)
			}
			t = &table{keys: make(map[string]bool)}
			s.tables[w.table] = t
		}
		t.rows = append(t.rows, w.row)
		if w.unique {
			t.keys[w.key] = true
		}
	}
	return nil
}
