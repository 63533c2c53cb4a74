package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/keyedtest"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

func TestUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, open(t, filepath.Join(t.TempDir(), "x.db")), keyedtest.SQLite)
	})
}

func TestPostgresUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		url := pgtest.Database(t)
		keyedtest.SetUpPostgres(t, url)
		return keyedHarness(t, openPostgres(t, url, nil), keyedtest.Postgres)
	})
}

func TestMariaDBUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, openMariaDB(t, mariadbtest.Database(t), nil), keyedtest.MySQL)
	})
}

func TestSQLServerUpsert(t *testing.T) {
	keyedtest.Run(t, func(t testing.TB) keyedtest.Harness {
		return keyedHarness(t, openMSSQL(t, sqlservertest.Database(t), nil), keyedtest.SQLServer)
	})
}

func keyedHarness(t testing.TB, s *Store, words keyedtest.Words) keyedtest.Harness {
	t.Helper()
	for partition := range 2 {
		_, err := s.Claim(t.Context(), leaseOf(fmt.Sprint(partition), "a", 1), "1")
		suite.NoError(t, "claim", err)
	}
	return keyedtest.Harness{
		DB: s.DB(),
		Step: func(ctx context.Context, partition int, handle func(ctx context.Context, upsert keyedtest.Upsert) error) error {
			step := driver.Step{Lease: leaseOf(fmt.Sprint(partition), "a", 1), From: driver.Unset, To: driver.Unset}
			return s.Commit(ctx, step, func(ctx context.Context, tx *Tx) error {
				return handle(ctx, func(table string, columns []string, rows [][]any, k driver.Keyed) error {
					return tx.Upsert(ctx, table, columns, rows, k)
				})
			})
		},
		Row: func(err error) int {
			if refused, ok := errors.AsType[*RowError](err); ok {
				return refused.Row
			}
			return -1
		},
		Outage: func(err error) bool {
			_, blamed := errors.AsType[*driver.HandlerError](err)
			return err != nil && !blamed
		},
		Words: words,
	}
}

// TestUpsertOfSQLite: what SQLite's tables have of their own.
func TestUpsertOfSQLite(t *testing.T) {
	s, l := begun(t, nil)
	suite.NoError(t, "set up", execute(t.Context(), s.DB(), `
		CREATE TABLE replacing (id INTEGER NOT NULL UNIQUE ON CONFLICT REPLACE, code TEXT UNIQUE ON CONFLICT REPLACE, n INTEGER DEFAULT 7);
		CREATE TABLE bare (id TEXT PRIMARY KEY NOT NULL, n INTEGER) WITHOUT ROWID;
		CREATE TABLE other (id TEXT NOT NULL, n INTEGER);
		CREATE UNIQUE INDEX folded_index ON other (id COLLATE NOCASE);
		CREATE TABLE versions (id INTEGER PRIMARY KEY, v VARCHAR(9));
		CREATE VIEW looking AS SELECT * FROM bare`))
	write := func(table string, rows [][]any, k driver.Keyed, columns ...string) error {
		return s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			return tx.Upsert(ctx, table, columns, rows, k)
		})
	}
	expect := func(what, query, want string) {
		t.Helper()
		var got sql.NullString
		if err := s.DB().QueryRow(query).Scan(&got); err != nil || got.String != want {
			t.Errorf("%s: %q, %v; want %q", what, got.String, err, want)
		}
	}
	k := driver.Keyed{Key: []string{"id"}}
	suite.NoError(t, "first", write("replacing", [][]any{{1, "a"}, {2, "b"}}, k, "id", "code"))
	suite.NoError(t, "mark", execute(t.Context(), s.DB(), "UPDATE replacing SET n = 8"))
	err := write("replacing", [][]any{{3, "c"}, {4, "a"}}, k, "id", "code")
	if refused, ok := errors.AsType[*RowError](err); !ok || refused.Row != 1 {
		t.Errorf("a row that would replace another: %v, want an error of row 1", err)
	}
	suite.NoError(t, "updates", write("main.replacing", [][]any{{1, "d"}, {3, "c"}}, k, "id", "code"))
	expect("replacing", "SELECT group_concat(id || code || n) FROM (SELECT * FROM replacing ORDER BY id)", "1d8,2b8,3c7")

	k.Delete = func(row int) bool { return row == 2 }
	for _, table := range []string{"bare", "other"} {
		suite.NoError(t, table, write(table, [][]any{{"a", 1}, {"B", 2}, {map[string]string{"bare": "B", "other": "b"}[table], nil}, {"A", 3}}, k, "id", "n"))
	}
	expect("bare", "SELECT group_concat(id || n) FROM (SELECT * FROM bare ORDER BY id)", "A3,a1")
	expect("other", "SELECT group_concat(id || n) FROM other", "a3")
	if err := write("looking", [][]any{{"a", 1}}, k, "id", "n"); !errors.Is(err, driver.ErrUnsafeTable) && (err == nil || errors.As(err, new(*driver.HandlerError))) {
		t.Errorf("a view: %v, want an outage", err)
	}
	newer := driver.Keyed{Key: []string{"id"}, OnConflict: driver.Newer, Version: "v", Delete: func(row int) bool { return row == 0 }}
	suite.NoError(t, "versions", write("versions", [][]any{{1, 9}, {1, 10}, {2, 10}, {2, 9}}, newer, "id", "v"))
	expect("versions as texts", "SELECT group_concat(id || ':' || v) FROM versions", "2:9")
}

// TestUpsertIgnored: a handler that drops the error of a write has failed.
func TestUpsertIgnored(t *testing.T) {
	s, l := begun(t, nil)
	suite.NoError(t, "set up", execute(t.Context(), s.DB(), "CREATE TABLE small (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 10))"))
	err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
		tx.Upsert(ctx, "small", []string{"id", "n"}, [][]any{{1, 1}, {2, 10}}, driver.Keyed{Key: []string{"id"}})
		return nil
	})
	if refused, ok := errors.AsType[*RowError](err); !ok || refused.Row != 1 {
		t.Errorf("error %v, want one of row 1", err)
	}
	var n int
	if err := s.DB().QueryRow("SELECT count(*) FROM small").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows, %v; want none", n, err)
	}
}

// TestMariaDBUpsertKeys: a unique index on the beginning of a column is no key.
func TestMariaDBUpsertKeys(t *testing.T) {
	s := openMariaDB(t, mariadbtest.Database(t), nil)
	suite.NoError(t, "set up", execute(t.Context(), s.DB(), "CREATE TABLE beginnings (id VARCHAR(20) NOT NULL, UNIQUE (id(3)))"))
	var of error
	inNextEpoch(t, s, func(ctx context.Context, tx *Tx) error {
		of = tx.Upsert(ctx, "beginnings", []string{"id"}, [][]any{{"abcd"}}, driver.Keyed{Key: []string{"id"}})
		return of
	})
	if !errors.Is(of, driver.ErrUnsafeTable) {
		t.Errorf("error %v, want an unsafe table", of)
	}
}
