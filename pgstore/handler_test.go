package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/pgstore"
)

// begun is a store with effects and a claimed checkpoint.
func begun(t testing.TB) (*pgstore.Store, driver.Lease) {
	s := open(t, pgtest.Database(t), nil)
	createEffects(t, s)
	l := lease("a", 1)
	claim(t, s, l)
	return s, l
}

// first is the step that the tests take.
func first(l driver.Lease) driver.Step {
	return driver.Step{Lease: l, From: driver.Unset, To: positionAt(1)}
}

type handler func(ctx context.Context, tx pgx.Tx) error

// Errors that a handler drops, whichever way it met them, are its own, and
// nothing of it stays.
func TestErrorsDropped(t *testing.T) {
	const bad = `INSERT INTO unique_now VALUES (1), (1)`
	s, l := begun(t)
	for name, drop := range map[string]handler{
		"Exec": func(ctx context.Context, tx pgx.Tx) error { tx.Exec(ctx, bad); return nil },
		"Prepare": func(ctx context.Context, tx pgx.Tx) error {
			tx.Prepare(ctx, "x", `SELECT 'no number'::int`)
			return nil
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { tx.QueryRow(ctx, bad+` RETURNING n`).Scan(nil); return nil },
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, `SELECT 1 / (2 - n) FROM generate_series(1, 2) n`)
			for rows.Next() {
			}
			return nil
		},
		"QueryClosed": func(ctx context.Context, tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, `SELECT 1 / (2 - n) FROM generate_series(1, 2) n`)
			rows.Close()
			return nil
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			pgstore.Insert(ctx, tx, "unique_now", []string{"n"}, [][]any{{1}, {1}})
			return nil
		},
		"Batch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(bad)
			tx.SendBatch(ctx, &b).Close()
			return nil
		},
		"Savepoint": func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			inner.Exec(ctx, bad)
			return nil
		},
		"Conn": func(ctx context.Context, tx pgx.Tx) error { tx.Conn().Exec(ctx, bad); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
				if err := put(ctx, tx, name); err != nil {
					return err
				}
				return drop(ctx, tx)
			})
			if !blames(err) {
				t.Errorf("error is %T %v, want a HandlerError", err, err)
			}
			if _, found := errors.AsType[*pgconn.PgError](err); !found && name != "Conn" {
				t.Errorf("error is %v, want PostgreSQL's own inside", err)
			}
			expect(t, s, driver.Unset)
		})
	}
}

// What a handler has left open is closed for it.
func TestLeftOpen(t *testing.T) {
	s, l := begun(t)
	position := int64(0)
	for name, open := range map[string]handler{
		"Rows": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT n FROM generate_series(1, 1000) n`)
			rows.Next()
			return err
		},
		"Batch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(`SELECT 2`)
			rows, err := tx.SendBatch(ctx, &b).Query()
			rows.Next()
			return err
		},
	} {
		step := driver.Step{Lease: l, From: positionAt(position), To: positionAt(position + 1)}
		if position == 0 {
			step.From = driver.Unset
		}
		position++
		if err := s.Commit(t.Context(), step, open); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expect(t, s, positionAt(2))
}

func TestDeferredConstraint(t *testing.T) {
	s, l := begun(t)
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO unique_later VALUES (1), (1)`)
		return err
	})
	if e, found := errors.AsType[*pgconn.PgError](err); !blames(err) || !found || e.Code != "23505" {
		t.Errorf("error is %v, want a HandlerError with the violation", err)
	}
	expect(t, s, driver.Unset)
}

// Whichever way a handler tries to end its transaction, it can't, and can go on.
func TestHandlerCannotCommit(t *testing.T) {
	s, l := begun(t)
	from := driver.Unset
	for name, try := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"Exec":     func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `COMMIT`); return err },
		"Rolled":   func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `/* */ rollback`); return err },
		"Several": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1; COMMIT; BEGIN`)
			return err
		},
		"Query":    func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Query(ctx, `COMMIT`); return err },
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, `END`).Scan() },
		"Prepare":  func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Prepare(ctx, "c", `COMMIT`); return err },
		"Procedure": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DO $$ BEGIN COMMIT; END $$`)
			return err
		},
		"Batch": func(ctx context.Context, tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(`COMMIT`)
			return tx.SendBatch(ctx, &b).Close()
		},
		"Savepoint": func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return nil
			}
			_, err = inner.Exec(ctx, `COMMIT`)
			return errors.Join(err, inner.Commit(ctx))
		},
	} {
		refused := errors.New("undo this")
		err := s.Commit(t.Context(), driver.Step{Lease: l, From: from, To: positionAt(1)}, func(ctx context.Context, tx pgx.Tx) error {
			if err := put(ctx, tx, name); err != nil {
				return err
			}
			err := try(ctx, tx)
			if err == nil {
				t.Errorf("%s: was not refused", name)
			} else if name != "Procedure" && !strings.Contains(err.Error(), "handler cannot") {
				t.Errorf("%s: error is %q, want what a handler is to do instead", name, err)
			}
			return refused
		})
		if !blames(err) || !errors.Is(err, refused) {
			t.Errorf("%s: error is %v, want the handler's", name, err)
		}
		expect(t, s, from)
	}
	if err := commit(t.Context(), s, l, from, positionAt(1), "1"); err != nil {
		t.Error(err)
	}
	expect(t, s, positionAt(1), "1")
}

// TestMoveChangesNoRow: a checkpoint that does not move, because the handler or a trigger has
// changed what it is, undoes the step.
func TestMoveChangesNoRow(t *testing.T) {
	s, l := begun(t)
	for name, change := range map[string]string{
		"epoch":   `UPDATE sluice_checkpoints SET epoch = epoch + 1`,
		"deleted": `DELETE FROM sluice_checkpoints`,
		"trigger": `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
			CREATE TRIGGER keep BEFORE UPDATE ON sluice_checkpoints FOR EACH ROW EXECUTE FUNCTION keep()`,
	} {
		err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, change)
			return errors.Join(put(ctx, tx, name), err)
		})
		if !errors.Is(err, driver.ErrFenced) || blames(err) || !strings.Contains(err.Error(), "did not move: look for") {
			t.Errorf("%s: error is %v, want ErrFenced that says that the checkpoint did not move", name, err)
		}
		expect(t, s, driver.Unset)
	}
}

// TestClaimNamesPrepared: a prepared transaction keeps the checkpoint locked without a session.
func TestClaimNamesPrepared(t *testing.T) {
	s := open(t, pgtest.Database(t), &pgstore.Config{LockTimeout: 100 * time.Millisecond})
	createEffects(t, s)
	l := lease("a", 1)
	claim(t, s, l)
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, `PREPARE TRANSACTION 'left'`)
		return err
	})
	if !errors.Is(err, driver.ErrHandlerEnded) {
		t.Errorf("error is %v, want ErrHandlerEnded", err)
	}
	if _, err := s.Claim(t.Context(), lease("b", 2), "1"); err == nil || !strings.Contains(err.Error(), "pg_prepared_xacts") {
		t.Errorf("claim: error is %v, want one that names pg_prepared_xacts", err)
	}
	if _, err := s.Pool().Exec(t.Context(), `ROLLBACK PREPARED 'left'`); err != nil {
		t.Fatal(err)
	}
	claim(t, s, lease("b", 2))
}

func TestSavepoint(t *testing.T) {
	s, l := begun(t)
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return put(ctx, tx, "kept") }); err != nil {
			return err
		}
		undone := errors.New("undone")
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if err := put(ctx, tx, "gone"); err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT 1/0`)
				return errors.Join(err, undone)
			})
		})
		if !errors.Is(err, undone) {
			return err
		}
		return put(ctx, tx, "last")
	})
	if err != nil {
		t.Error(err)
	}
	expect(t, s, positionAt(1), "kept", "last")
}

func TestPanic(t *testing.T) {
	s, l := begun(t)
	func() {
		defer func() {
			if v := recover(); v != "oops" {
				t.Errorf("recovered %v, want the handler's panic", v)
			}
		}()
		s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
			if err := put(ctx, tx, "1"); err != nil {
				return err
			}
			panic("oops")
		})
	}()
	if err := commit(t.Context(), s, l, driver.Unset, positionAt(1), "after"); err != nil {
		t.Error(err)
	}
	expect(t, s, positionAt(1), "after")
}

// What counts is why the handler failed, not what it got over: a lock that it
// could not get and did without is no outage, an outage of another database is.
func TestRecovered(t *testing.T) {
	s, l := begun(t)
	no := errors.New("no")
	for _, c := range []struct {
		code   string
		result func(error) error
		blamed bool
	}{
		{"lock_not_available", func(error) error { return no }, true},
		{"lock_not_available", func(err error) error { return fmt.Errorf("no lock: %w", err) }, false},
		{"unique_violation", func(err error) error { return fmt.Errorf("a repeat: %w", err) }, true},
	} {
		err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE `+c.code+`; END $$`)
				return err
			})
			if err == nil {
				t.Errorf("%s: no error", c.code)
			}
			return c.result(err)
		})
		if !c.blamed {
			outage(t, err)
		} else if !blames(err) {
			t.Errorf("%s: error is %v, want the handler's own", c.code, err)
		}
	}
	expect(t, s, driver.Unset)
}

// What is wrong with the statement may be wrong for every event: the error names the statement, and
// what to do.
func TestStatementErrors(t *testing.T) {
	s, l := begun(t)
	if _, err := s.Pool().Exec(t.Context(), `
		CREATE TABLE days (day date) PARTITION BY RANGE (day);
		CREATE TABLE checked (n int CONSTRAINT small CHECK (n < 10));
		CREATE TABLE later (n int);
		CREATE FUNCTION use_missing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO nowhere VALUES (1); RETURN NEW; END $$;
		CREATE CONSTRAINT TRIGGER late AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION use_missing()`); err != nil {
		t.Fatal(err)
	}
	for sql, says := range map[string]string{
		`INSERT INTO nowhere VALUES (1)`:                                        "a table is missing: create it",
		`INSERT INTO nowhere.t VALUES (1)`:                                      "is missing: create it",
		`CREATE TABLE nowhere.t (n int)`:                                        "a schema is missing: create it",
		`INSERT INTO effects (colour) VALUES ('red')`:                           "a column is missing: create it",
		`SELECT conjure(1)`:                                                     "a function is missing: create it",
		`INSERT INTO days VALUES ('2001-02-03')`:                                "no partition for this row: create it",
		`SET LOCAL ROLE pg_read_all_settings; INSERT INTO effects VALUES ('x')`: "lacks a right, or a row-level policy",
		`SELEKT 1`:                       "correct the statement",
		`INSERT INTO later VALUES (1)`:   "a table is missing: create it", // found at COMMIT
		`INSERT INTO checked VALUES (1)`: "",
		`SET LOCAL transaction_read_only = on; INSERT INTO checked VALUES (1)`: "check whether it is a standby",
	} {
		for _, dropped := range []bool{false, true} {
			for _, dry := range []bool{true, false} {
				err := s.Commit(t.Context(), driver.Step{Lease: l, From: driver.Unset, To: driver.Unset, DryRun: dry}, func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, sql)
					if dropped {
						return nil
					}
					return err
				})
				if says == "" {
					if err != nil {
						t.Errorf("%s: %v", sql, err)
					}
					continue
				}
				if failed, _ := errors.AsType[*driver.HandlerError](err); strings.Contains(says, "standby") {
					outage(t, err)
				} else if failed == nil || len(failed.Statements) == 0 {
					t.Errorf("%s: error is %T %v, want one of a statement", sql, err, err)
				}
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%s: error is %v, want %q", sql, err, says)
				}
			}
		}
	}
	if err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO checked VALUES (11)`)
		return err
	}); !blames(err) {
		t.Errorf("a violated check: error is %v, want the event's", err)
	}
	expect(t, s, driver.Unset)
}

// A time limit that ends in the handler is not reported as an outage, whoever has set it.
func TestTimeLimits(t *testing.T) {
	url := pgtest.Database(t)
	// A lease is short only where its end is the limit. A round trip may take as long as a lock.
	long, short := open(t, url, nil), open(t, url, &pgstore.Config{LeaseFor: time.Second, LockTimeout: patient.LockTimeout})
	createEffects(t, long)
	l := lease("a", 1)
	claim(t, long, l)
	for name, h := range map[string]handler{
		"statement_timeout": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 20; SELECT pg_sleep(10)`)
			return err
		},
		"statement_timeout, dropped": func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, `SET LOCAL statement_timeout = 20; SELECT pg_sleep(10)`)
			return nil
		},
		"context": func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second) // long enough for the statement to begin
			defer cancel()
			_, err := tx.Exec(ctx, `SELECT pg_sleep(10)`)
			return fmt.Errorf("slow: %w", err)
		},
		"idle, then done":        func(ctx context.Context, tx pgx.Tx) error { return idle(ctx, long, tx) },
		"idle, then a statement": func(ctx context.Context, tx pgx.Tx) error { return errors.Join(idle(ctx, long, tx), put(ctx, tx, "2")) },
	} {
		s := long
		if strings.HasPrefix(name, "idle") {
			s = short
		}
		err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
			if err := put(ctx, tx, "1"); err != nil {
				return err
			}
			return h(ctx, tx)
		})
		outage(t, err)
		if !errors.Is(err, driver.ErrTimeLimit) {
			t.Errorf("%s: error is %v, want ErrTimeLimit", name, err)
		}
		expect(t, long, driver.Unset)
	}
}

// idle waits until the server has ended the session of tx.
func idle(ctx context.Context, s *pgstore.Store, tx pgx.Tx) error {
	pid := tx.Conn().PgConn().PID()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		var there bool
		if err := s.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&there); err != nil || !there {
			return err
		}
	}
	return nil
}

// dbtx is what sqlc generates.
type dbtx interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(ctx context.Context, tableName pgx.Identifier, columnNames []string, rowSrc pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

func TestQueries(t *testing.T) {
	s, l := begun(t)
	use := func(ctx context.Context, db dbtx) error {
		if _, err := db.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"key"}, pgx.CopyFromSlice(3, func(i int) ([]any, error) {
			return []any{fmt.Sprint(i)}, nil
		})); err != nil {
			return err
		}
		var n int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM effects WHERE key <> $1`, "x").Scan(&n); err != nil || n != 3 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		if err := db.QueryRow(ctx, `SELECT key FROM effects WHERE false`).Scan(nil); !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("no rows: got %w", err)
		}
		rows, err := db.Query(ctx, `SELECT key FROM effects ORDER BY key`)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct{ Key string }])
		if err != nil || len(keys) != 3 || keys[2].Key != "2" {
			return fmt.Errorf("rows %v, %w", keys, err)
		}
		var b pgx.Batch
		b.Queue(`INSERT INTO effects VALUES ($1)`, "3").Exec(func(tag pgconn.CommandTag) error {
			n = int(tag.RowsAffected())
			return nil
		})
		b.Queue(`SELECT count(*) FROM effects`).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		if err := db.SendBatch(ctx, &b).Close(); err != nil || n != 4 {
			return fmt.Errorf("batch: %d rows, %w", n, err)
		}
		return nil
	}
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		objects := tx.LargeObjects()
		if _, err := objects.Create(ctx, 0); err != nil {
			return err
		}
		return use(ctx, tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, positionAt(1), "0", "1", "2", "3")
}

// A handler's statements run under the session's own lock timeout, at READ
// COMMITTED, and within the lease's length of each other.
func TestHandlerSettings(t *testing.T) {
	s := open(t, pgtest.Database(t)+"&lock_timeout=7777&default_transaction_isolation=serializable", &pgstore.Config{LeaseFor: 33 * time.Second})
	l := lease("a", 1)
	claim(t, s, l)
	var got [3]string
	err := s.Commit(t.Context(), first(l), func(ctx context.Context, tx pgx.Tx) error {
		const sql = `SELECT current_setting('lock_timeout'), current_setting('transaction_isolation'), current_setting('idle_in_transaction_session_timeout')`
		return tx.QueryRow(ctx, sql).Scan(&got[0], &got[1], &got[2])
	})
	if want := [3]string{"7777ms", "read committed", "33s"}; err != nil || got != want {
		t.Errorf("settings are %q, %v; want %q", got, err, want)
	}
}
