package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/sqlservertest"
	"github.com/sluice-go/sluice/internal/proof/suite"
)

var nestedStores = map[string]func(t *testing.T) *Store{
	"SQLite":     func(t *testing.T) *Store { return open(t, filepath.Join(t.TempDir(), "x.db")) },
	"PostgreSQL": func(t *testing.T) *Store { return openPostgres(t, pgtest.Database(t), nil) },
	"MariaDB":    func(t *testing.T) *Store { return openMariaDB(t, mariadbtest.Database(t), nil) },
	"SQL Server": func(t *testing.T) *Store { return openMSSQL(t, sqlservertest.Database(t), nil) },
}

// executor is what a *sql.DB, a *sql.Tx and a *Tx have in common.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insertID inserts a row by any face of the transaction.
func insertID(ctx context.Context, q executor, id string) error {
	_, err := q.ExecContext(ctx, "INSERT INTO nested (id) VALUES ('"+id+"')")
	return err
}

// nested runs fn in a nested transaction, and ends it.
func nested(ctx context.Context, db *sql.DB, commit bool, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil || !commit {
		return err
	}
	return tx.Commit()
}

// nestedCases are handlers that end transactions. rows are what is in the table after a step that
// has committed; a step without committed says that the handler must fail, and then none are.
var nestedCases = []struct {
	name      string
	handle    func(ctx context.Context, t *testing.T, tx *Tx) error
	rows      []string
	committed bool
}{
	{"commit", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		return nested(ctx, tx.DB(), true, func(inner *sql.Tx) error { return insertID(ctx, inner, "in") })
	}, []string{"in", "out"}, true},
	{"rollback", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		return nested(ctx, tx.DB(), false, func(inner *sql.Tx) error { return insertID(ctx, inner, "in") })
	}, []string{"out"}, true},
	{"one after the other", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		for i, commit := range []bool{true, false, true} {
			if err := nested(ctx, tx.DB(), commit, func(inner *sql.Tx) error { return insertID(ctx, inner, fmt.Sprint(i)) }); err != nil {
				return err
			}
		}
		return insertID(ctx, tx.DB(), "db")
	}, []string{"0", "2", "db", "out"}, true},
	{"an error that the nested one has undone", func(ctx context.Context, t *testing.T, tx *Tx) error {
		err := nested(ctx, tx.DB(), true, func(inner *sql.Tx) error {
			return errors.Join(insertID(ctx, inner, "in"), insertID(ctx, inner, "out"))
		})
		if err == nil {
			t.Error("a duplicate is no error")
		}
		return insertID(ctx, tx, "after")
	}, []string{"after", "out"}, true},
	{"an error is returned", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		return firstOf(nested(ctx, tx.DB(), true, func(inner *sql.Tx) error { return insertID(ctx, inner, "in") }), errors.New("no"))
	}, nil, false},
	{"prepared, and read", func(ctx context.Context, t *testing.T, tx *Tx) error {
		return nested(ctx, tx.DB(), true, func(inner *sql.Tx) error {
			statement, err := inner.PrepareContext(ctx, "INSERT INTO nested (id) VALUES ('in')")
			if err != nil {
				return err
			}
			_, err = statement.ExecContext(ctx)
			if err = errors.Join(err, statement.Close()); err != nil {
				return err
			}
			var n int
			if err := inner.QueryRowContext(ctx, "SELECT count(*) FROM nested").Scan(&n); err != nil || n != 2 {
				t.Errorf("%d rows inside, %v", n, err)
			}
			return nil
		})
	}, []string{"in", "out"}, true},
	{"its context ends, and the handler goes on", func(ctx context.Context, t *testing.T, tx *Tx) error {
		short, end := context.WithCancel(ctx)
		inner, err := tx.DB().BeginTx(short, nil)
		suite.NoError(t, "begin", err)
		err = insertID(ctx, inner, "in")
		end() // database/sql rolls back on another goroutine
		return firstOf(err, insertID(ctx, tx, "after"))
	}, []string{"after", "out"}, true},
	{"its context ends, and the handler returns", func(ctx context.Context, t *testing.T, tx *Tx) error {
		short, end := context.WithCancel(ctx)
		defer end()
		inner, err := tx.DB().BeginTx(short, nil)
		suite.NoError(t, "begin", err)
		return insertID(ctx, inner, "in")
	}, []string{"out"}, true},
	{"SQL is written through", func(ctx context.Context, _ *testing.T, tx *Tx) error { return insertID(ctx, tx.SQL(), "in") }, []string{"in", "out"}, true},
	{"SQL commits", func(ctx context.Context, t *testing.T, tx *Tx) error {
		err := insertID(ctx, tx.SQL(), "in")
		if tx.SQL().Commit() == nil {
			t.Error("Commit is not refused")
		}
		return err
	}, []string{"in", "out"}, true},
	{"SQL rolls back", func(ctx context.Context, t *testing.T, tx *Tx) error {
		_ = insertID(ctx, tx.SQL(), "in")
		if tx.SQL().Rollback() == nil {
			t.Error("Rollback is not refused")
		}
		return nil
	}, nil, false},
	{"left open", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		inner, err := tx.DB().BeginTx(ctx, nil)
		return firstOf(err, insertID(ctx, inner, "in"))
	}, nil, false},
	{"beside a nested one", func(ctx context.Context, t *testing.T, tx *Tx) error {
		db := tx.DB()
		return nested(ctx, db, true, func(inner *sql.Tx) error {
			var n int
			for what, err := range map[string]error{
				"the transaction": insertID(ctx, tx, "a"), "its DB": insertID(ctx, db, "b"), "its Tx": insertID(ctx, tx.SQL(), "c"),
				"another":     nested(ctx, db, true, func(*sql.Tx) error { return nil }),
				"rows of its": tx.Insert(ctx, "nested", []string{"id"}, [][]any{{"d"}}),
				"a query":     tx.QueryRowContext(ctx, "SELECT count(*) FROM nested").Scan(&n),
			} {
				if err == nil {
					t.Errorf("%s is used while a nested one is open", what)
				}
			}
			return insertID(ctx, inner, "in")
		})
	}, nil, false},
	{"options", func(ctx context.Context, t *testing.T, tx *Tx) error {
		for _, o := range []sql.TxOptions{{ReadOnly: true}, {Isolation: sql.LevelSerializable}} {
			if _, err := tx.DB().BeginTx(ctx, &o); err == nil {
				t.Errorf("%v is accepted", o)
			}
		}
		return nil
	}, []string{"out"}, true},
	{"a nested one whose context ends", func(ctx context.Context, _ *testing.T, tx *Tx) error {
		ended, end := context.WithCancel(ctx)
		defer end()
		inner, err := tx.DB().BeginTx(ended, nil)
		if err = firstOf(err, insertID(ctx, inner, "in")); err != nil {
			return err
		}
		return nil
	}, []string{"out"}, true},
}

func firstOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestNested: whatever a handler does with the other faces of its transaction, its rows are there
// exactly as it meant them, together with the checkpoint; or it has failed, and none is.
func TestNested(t *testing.T) {
	for database, open := range nestedStores {
		t.Run(database, func(t *testing.T) {
			s := open(t)
			_, err := s.DB().Exec("CREATE TABLE nested (id VARCHAR(9) PRIMARY KEY)")
			suite.NoError(t, "create table", err)
			l := leaseOf("nested", "a", 1)
			_, err = s.Claim(t.Context(), l, "i")
			suite.NoError(t, "claim", err)
			from := driver.Unset
			step := func(fn func(ctx context.Context, tx *Tx) error) error {
				to := positionAt(max(from.Sequence, 0) + 1)
				err := s.Commit(t.Context(), driver.Step{Lease: l, From: from, To: to}, fn)
				if err == nil {
					from = to
				}
				return err
			}
			suite.NoError(t, "begin", step(nil))
			for _, c := range nestedCases {
				t.Run(c.name, func(t *testing.T) {
					_, err := s.DB().Exec("DELETE FROM nested")
					suite.NoError(t, "delete", err)
					var left *Tx
					err = step(func(ctx context.Context, tx *Tx) error {
						left = tx
						return firstOf(insertID(ctx, tx, "out"), c.handle(ctx, t, tx))
					})
					if c.committed {
						suite.NoError(t, "commit", err)
					} else {
						mustBlame(t, "commit", err)
					}
					mustHaveRows(t, s, c.rows)
					for what, q := range map[string]executor{"Tx": left, "DB": left.DB(), "SQL": left.SQL()} {
						if err := insertID(t.Context(), q, "late"); err == nil {
							t.Errorf("%s writes after the end", what)
						}
					}
				})
			}
			for _, raw := range []string{"COMMIT", "ROLLBACK"} {
				t.Run("raw "+raw, func(t *testing.T) {
					_, err := s.DB().Exec("DELETE FROM nested")
					suite.NoError(t, "delete", err)
					err = step(func(ctx context.Context, tx *Tx) error {
						return firstOf(insertID(ctx, tx, "out"), nested(ctx, tx.DB(), true, func(inner *sql.Tx) error {
							_ = insertID(ctx, inner, "in")
							_, err := inner.ExecContext(ctx, raw)
							if err == nil && raw == "COMMIT" {
								t.Error("COMMIT is not refused")
							}
							return nil
						}))
					})
					if err == nil {
						mustHaveRows(t, s, []string{"in", "out"})
					} else {
						mustHaveRows(t, s, nil)
					}
				})
			}
			t.Run("panic", func(t *testing.T) {
				_, err := s.DB().Exec("DELETE FROM nested")
				suite.NoError(t, "delete", err)
				func() {
					defer func() { _ = recover() }()
					_ = step(func(ctx context.Context, tx *Tx) error {
						return nested(ctx, tx.DB(), true, func(inner *sql.Tx) error {
							_ = insertID(ctx, inner, "in")
							panic("no")
						})
					})
				}()
				mustHaveRows(t, s, nil)
				suite.NoError(t, "the next step", step(func(ctx context.Context, tx *Tx) error { return insertID(ctx, tx, "next") }))
				mustHaveRows(t, s, []string{"next"})
			})
		})
	}
}

// Nothing is left of the faces of a transaction after it, also of what a handler has left open.
func TestNestedLeavesNothing(t *testing.T) {
	s, l := begun(t, nil)
	_, err := s.DB().Exec("CREATE TABLE nested (id VARCHAR(9) PRIMARY KEY)")
	suite.NoError(t, "create table", err)
	step := func() {
		_ = s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(9)}, func(ctx context.Context, tx *Tx) error {
			_ = insertID(ctx, tx.SQL(), "a")
			_, err := tx.DB().QueryContext(ctx, "SELECT id FROM nested")
			_, also := tx.DB().BeginTx(ctx, nil)
			return errors.Join(err, also)
		})
	}
	step()
	before := runtime.NumGoroutine()
	for range 50 {
		step()
	}
	for runtime.NumGoroutine() > before+5 && t.Context().Err() == nil {
		runtime.Gosched()
	}
}

func mustHaveRows(t *testing.T, s *Store, want []string) {
	t.Helper()
	rows, err := s.DB().Query("SELECT id FROM nested ORDER BY id")
	suite.NoError(t, "read", err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var id string
		suite.NoError(t, "scan", rows.Scan(&id))
		got = append(got, id)
	}
	if suite.NoError(t, "read", rows.Err()); !slices.Equal(got, want) {
		t.Errorf("rows %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}
