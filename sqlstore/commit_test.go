package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// begun is a new store with partition 0 claimed and at position 9.
func begun(t testing.TB, cfg *Config) (*Store, driver.Lease) {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	if cfg != nil {
		s.busy = cfg.BusyTimeout
	}
	l := leaseOf("0", "a", 1)
	if _, err := s.Claim(t.Context(), l, "i"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: driver.Unset, To: positionAt(9)}, nil); err != nil {
		t.Fatal(err)
	}
	return s, l
}

// untouched fails the test unless nothing was written since begun, and the
// next step works.
func untouched(t testing.TB, what string, s *Store, l driver.Lease) {
	t.Helper()
	for _, want := range [][]string{nil, {"next"}} {
		got, err := effects(t.Context(), s)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: effects are %q, %v; want %q", what, got, err, want)
		}
		if want != nil {
			break
		}
		if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
			return put(ctx, tx, "next")
		}); err != nil {
			t.Fatalf("%s: the next step: %v", what, err)
		}
	}
}

// A handler cannot end its transaction, in whatever way it tries and however
// little it cares about errors.
func TestHandlerEndsTransaction(t *testing.T) {
	exec := func(query string) func(context.Context, *Tx) {
		return func(ctx context.Context, tx *Tx) { tx.ExecContext(ctx, query) }
	}
	for what, end := range map[string]func(context.Context, *Tx){
		"COMMIT":              exec("COMMIT"),
		"END":                 exec("end transaction"),
		"ROLLBACK":            exec("ROLLBACK"),
		"COMMIT and BEGIN":    exec("/* */ COMMIT; BEGIN"),
		"ROLLBACK and BEGIN":  exec("ROLLBACK; BEGIN IMMEDIATE"),
		"write and COMMIT":    exec("INSERT INTO effects (key) VALUES ('more'); COMMIT; INSERT INTO effects (key) VALUES ('and more')"),
		"OR ROLLBACK":         exec("INSERT OR ROLLBACK INTO children (small) VALUES (10)"),
		"RELEASE after begin": exec("SAVEPOINT a; COMMIT; RELEASE a"),
		"query": func(ctx context.Context, tx *Tx) {
			if rows, err := tx.QueryContext(ctx, "COMMIT"); err == nil {
				rows.Close()
			}
		},
		"query for a row": func(ctx context.Context, tx *Tx) {
			var x int
			tx.QueryRowContext(ctx, "COMMIT").Scan(&x)
		},
		"prepared statement": func(ctx context.Context, tx *Tx) {
			if stmt, err := tx.PrepareContext(ctx, "COMMIT"); err == nil {
				stmt.ExecContext(ctx)
			}
		},
		"prepared query": func(ctx context.Context, tx *Tx) {
			if stmt, err := tx.PrepareContext(ctx, "ROLLBACK"); err == nil {
				if rows, err := stmt.QueryContext(ctx); err == nil {
					rows.Next()
				}
			}
		},
		"trigger": func(ctx context.Context, tx *Tx) {
			tx.ExecContext(ctx, "CREATE TEMP TRIGGER no BEFORE INSERT ON effects WHEN new.key = 'no' BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
			tx.ExecContext(ctx, "INSERT INTO effects (key) VALUES ('no')")
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, l := begun(t, nil)
			err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10), DeadLetters: []driver.DeadLetter{{Group: group}}}, func(ctx context.Context, tx *Tx) error {
				if err := put(ctx, tx, "before"); err != nil {
					return err
				}
				prepared, err := tx.PrepareContext(ctx, "INSERT INTO effects (key) VALUES ('after')")
				if err != nil {
					return err
				}
				end(ctx, tx)
				put(ctx, tx, "after")
				prepared.ExecContext(ctx)
				var x int
				if err := tx.QueryRowContext(ctx, "SELECT 1").Scan(&x); !errors.Is(err, errEnded) {
					t.Errorf("a query after the end: %v", err)
				}
				tx.Insert(ctx, "effects", []string{"key"}, [][]any{{"after"}})
				return nil
			})
			if failed := mustBlame(t, "commit", err); !strings.Contains(failed.Error(), "handler ended its own transaction") {
				t.Errorf("commit: %v, want that the handler ended its transaction", err)
			}
			untouched(t, what, s, l)
		})
	}
}

// A statement that the handler cancels itself takes the whole transaction with
// it in SQLite. What comes after must not be written on its own.
func TestHandlerCancelsStatement(t *testing.T) {
	need.RealTime(t)
	s, l := begun(t, nil)
	err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		if err := put(ctx, tx, "before"); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, time.Second) // long enough for the statement to begin
		defer cancel()
		_, err := tx.ExecContext(short, "INSERT INTO effects (key) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("endless statement: %v", err)
		}
		put(ctx, tx, "after")
		return nil
	})
	mustBlame(t, "commit", err)
	untouched(t, "cancelled statement", s, l)
}

// Savepoints are the handler's own affair.
func TestHandlerSavepoints(t *testing.T) {
	s, l := begun(t, nil)
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		for _, query := range []string{
			"SAVEPOINT a", "INSERT INTO effects (key) VALUES ('undone')", "ROLLBACK TO a", "RELEASE a",
			"SAVEPOINT b", "INSERT INTO effects (key) VALUES ('kept')", "RELEASE b",
		} {
			if _, err := tx.ExecContext(ctx, query); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := effects(t.Context(), s); err != nil || !slices.Equal(got, []string{"kept"}) {
		t.Errorf("effects are %q, %v", got, err)
	}
}

// What a handler forgets to close holds nothing up.
func TestHandlerLeaks(t *testing.T) {
	s, l := begun(t, nil)
	var late *sql.Stmt
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		for range 3 {
			if err := put(ctx, tx, "kept"); err != nil {
				return err
			}
		}
		rows, err := tx.QueryContext(ctx, "SELECT key FROM effects")
		if err != nil || !rows.Next() {
			t.Errorf("query: %v", err)
		}
		tx.QueryRowContext(ctx, "INSERT INTO effects (key) VALUES ('returned'), ('twice') RETURNING key")
		late, err = tx.PrepareContext(ctx, "INSERT INTO effects (key) VALUES ('late')")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(); err == nil {
		t.Error("a statement of a transaction that is over was run")
	}
	if got, err := effects(t.Context(), s); err != nil || !slices.Equal(got, []string{"kept", "kept", "kept", "returned", "twice"}) {
		t.Errorf("effects are %q, %v", got, err)
	}
}

// A handler that panics or ends its goroutine leaves the store usable.
func TestHandlerPanics(t *testing.T) {
	s, l := begun(t, nil)
	func() {
		defer func() {
			if recover() != "no" {
				t.Error("the panic did not come through")
			}
		}()
		s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
			put(ctx, tx, "bad")
			panic("no")
		})
	}()
	untouched(t, "panic", s, l)
}

// TestHandlerBesideItsTx: a write past the handler's Tx waits for the handler itself. The failure
// says so, and is still that of its event.
func TestHandlerBesideItsTx(t *testing.T) {
	s, l := begun(t, nil)
	beside := ofTest(t, sql.OpenDB(&sqliteConnector{dsn: "file:" + s.name}))
	for name, wrap := range map[string]func(error) error{
		"alone":    func(err error) error { return err },
		"event 3":  func(err error) error { return &driver.EventError{Index: 3, Err: err} },
		"rejected": driver.Reject,
	} {
		err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
			_, err := beside.ExecContext(ctx, "INSERT INTO effects (key) VALUES ('beside')")
			return wrap(err)
		})
		saysAll(t, name, err, "database is locked", "write through its Tx, not through another connection")
		if each, is := errors.AsType[*driver.EventError](err); is != (name == "event 3") || is && (each.Index != 3 || !strings.Contains(each.Err.Error(), "write through its Tx")) {
			t.Errorf("%s: the event to blame is %v", name, each)
		}
		if errors.Is(err, driver.ErrRejected) != (name == "rejected") {
			t.Errorf("%s: %v is a rejection, or is none", name, err)
		}
	}
	untouched(t, "beside", s, l)
}

func TestUnknownTable(t *testing.T) {
	s, l := begun(t, nil)
	err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
		return err
	})
	mustNameStatement(t, "commit", err)
	saysAll(t, "commit", err, "no such table: nowhere")
	untouched(t, "unknown table", s, l)
}

// Foreign keys are enforced, at once or at the commit.
func TestForeignKeys(t *testing.T) {
	for _, column := range []string{"now", "later"} {
		s, l := begun(t, nil)
		err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO children ("+column+") VALUES (404)")
			if (err != nil) != (column == "now") {
				t.Errorf("%s: %v", column, err)
			}
			return err
		})
		if failed := mustBlame(t, "commit", err); !strings.Contains(failed.Error(), "FOREIGN KEY") {
			t.Errorf("%s: %v", column, failed)
		}
		untouched(t, column, s, l)
	}
}

// Leases go on while a handler holds the database.
func TestLeasesBesideHandler(t *testing.T) {
	s, l := begun(t, nil)
	if err := s.Commit(t.Context(), driver.Step{Lease: l, From: positionAt(9), To: positionAt(10)}, func(ctx context.Context, tx *Tx) error {
		lease, err := s.Leases().Acquire(ctx, group, "0", "a", time.Hour, 0)
		if err != nil {
			return err
		}
		if err := s.Leases().Renew(ctx, lease, time.Hour); err != nil {
			return err
		}
		_, err = s.Read(ctx, group) // reading goes on as well
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A step that is cancelled at any moment is done or it is not, and the error
// tells which.
func TestCancelledAtAnyTime(t *testing.T) {
	need.RealTime(t)
	s, l := begun(t, nil)
	from, done, cut, random := positionAt(9), 0, 0, need.Rand(t)
	for i := 0; i < 300 || cut == 0 || done == 0; i++ {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(2*time.Millisecond))), cancel)
		to := positionAt(from.Sequence + 1)
		err := s.Commit(ctx, driver.Step{Lease: l, From: from, To: to}, func(ctx context.Context, tx *Tx) error {
			return tx.Insert(ctx, "effects", []string{"key", "part"}, rowsOf(fmt.Sprint(to), 100, 20))
		})
		timer.Stop()
		cancel()
		if err == nil {
			from = to
			done++
		} else {
			mustNotBlame(t, "commit that is cancelled", err)
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("commit that is cancelled: %v", err)
			}
			cut++
		}
		list, err := s.Read(t.Context(), group)
		if err != nil || list[0].Position.Sequence != from.Sequence {
			t.Fatalf("checkpoint at %+v, %v; want %v", list, err, from)
		}
		var rows int
		if err := s.DB().QueryRow("SELECT count(*) FROM effects").Scan(&rows); err != nil || rows != 100*done {
			t.Fatalf("%d rows of %d steps, %v", rows, done, err)
		}
	}
	t.Logf("%d steps done, %d cut short", done, cut)
}
