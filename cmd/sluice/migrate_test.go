package main_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrate: what is printed makes the tables as the command does, and --check finds whether they
// are there, and changes nothing.
func TestMigrate(t *testing.T) {
	_, connection := serve(t, 1)
	byCommand, byPrint := filepath.Join(t.TempDir(), "x.db"), filepath.Join(t.TempDir(), "x.db")
	migrate := func(path string, more ...string) (int, string, string) {
		url := "sqlite:" + path
		return invoke(t, "", environment(connection, url), append([]string{"migrate", "--config", quick(t, url)}, more...)...)
	}
	code, _, stderr := migrate(byCommand, "--check")
	if _, err := os.Stat(byCommand); code != 1 || !strings.Contains(stderr, "sluice migrate") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a check without a database: exit code %d, %s; its file: %v", code, stderr, err)
	}
	code, printed, stderr := migrate(byCommand, "--print")
	store, leases, ok := strings.Cut(printed, "-- leases/0001_leases.up.sql")
	if _, err := os.Stat(byCommand); code != 0 || !ok || !strings.HasPrefix(store, "-- 0001_store.up.sql\n-- +goose Up\n") || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("exit code %d, %s, printed %s; the file: %v", code, stderr, printed, err)
	}
	if code, _, stderr := migrate(byCommand); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for file, text := range map[string]string{byPrint: store, byPrint + "-leases": leases} {
		db, err := sql.Open("sqlite", file)
		if err == nil {
			_, err = db.Exec(text)
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{byCommand, byPrint} {
		if code, _, stderr := migrate(path, "--check"); code != 0 {
			t.Errorf("the check of %s: exit code %d, %s", path, code, stderr)
		}
	}
	if code, _, _ := migrate(byCommand, "--check", "--print"); code != 2 {
		t.Errorf("both flags: exit code %d", code)
	}
}
