package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
)

// TestOpenRefuses: another program's file stays unchanged, and a bad path is an error.
func TestOpenRefuses(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE theirs (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		foreign: "the SQLite file belongs to another program (schema 0, 1 tables)",
		filepath.Join(t.TempDir(), "nowhere", "state.db"): "give a path where a SQLite file can be created",
	} {
		if _, err := sqlstore.OpenSQLite(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want … %s", path, err, want)
		}
	}
}

// TestOpenAgain: two stores on one file see the same, and so does a third after both
// are closed.
func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var stores []*sqlstore.Store
	for range 2 {
		s, err := sqlstore.OpenSQLite(path)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	if err := stores[0].Save(t.Context(), &autoscale.ResourceState{Resource: "r", Instances: 7}); err != nil {
		t.Fatal(err)
	}
	if err := stores[1].Queue("q", 0).Send(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	for i, s := range stores {
		if m, err := s.Load(t.Context(), "r"); err != nil || m.Instances != 7 {
			t.Errorf("store %d: %+v, %v", i, m, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := sqlstore.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	messages, err := s.Queue("q", 0).Receive(t.Context(), 1)
	if err != nil || string(messages[0].Body) != "a" {
		t.Errorf("received %v, %v", messages, err)
	}
}

// TestOpenTogether: processes that are started together may all create the file.
func TestOpenTogether(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "state.db")
		var opening sync.WaitGroup
		for range 8 {
			opening.Go(func() {
				s, err := sqlstore.OpenSQLite(path)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		opening.Wait()
	}
}

// openBoth opens a new file as a store, and as a database.
func openBoth(t *testing.T) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlstore.OpenSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return s, db
}

// TestDeadLettersAreBounded: the last thousand dead letters are kept.
func TestDeadLettersAreBounded(t *testing.T) {
	s, db := openBoth(t)
	if _, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
		INSERT INTO messages (queue, body, aside) SELECT 'metrics', i, 'bad' FROM n UNION ALL SELECT 'other', 1, 'bad'`); err != nil {
		t.Fatal(err)
	}
	q := s.Queue("metrics", 0)
	if err := q.Send(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	messages, err := q.Receive(t.Context(), 1)
	if err == nil {
		err = q.DeadLetter(t.Context(), &messages[0], "bad too")
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := q.DeadLetters(t.Context())
	if err != nil || len(list) != 1000 || string(list[0].Body) != "102" || string(list[999].Body) != "last" {
		t.Errorf("%d dead letters, %v; want 1,000, from 102 on", len(list), err)
	}
	if other, err := s.Queue("other", 0).DeadLetters(t.Context()); err != nil || len(other) != 1 {
		t.Errorf("of another queue %d are left, %v", len(other), err)
	}
}
