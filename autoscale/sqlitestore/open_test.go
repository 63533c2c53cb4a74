package sqlitestore_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/sqlitestore"
)

// TestOpenRefuses: another program's file is left alone, and a bad path is told.
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
		foreign: "it is a SQLite file of something else (schema 0, 1 tables)",
		filepath.Join(t.TempDir(), "nowhere", "state.db"): "give a path where a SQLite file can be created",
	} {
		if _, err := sqlitestore.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want … %s", path, err, want)
		}
	}
}

// TestOpenAgain: two that have the file open see the same, and so does a third
// after both are gone.
func TestOpenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var stores []*sqlitestore.Store
	for range 2 {
		s, err := sqlitestore.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	if err := stores[0].Save(t.Context(), &autoscale.Memory{Resource: "r", Instances: 7}); err != nil {
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
	s, err := sqlitestore.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	messages, err := s.Queue("q", 0).Receive(t.Context(), 1)
	if err != nil || string(messages[0].Body) != "a" {
		t.Errorf("received %v, %v", messages, err)
	}
}
