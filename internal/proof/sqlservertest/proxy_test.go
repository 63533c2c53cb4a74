//go:build sqlserver

package sqlservertest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// connect opens one connection.
func connect(t *testing.T, url string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlserver", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// tabled returns the URL of a database with the table t, and a connection to it without a proxy.
func tabled(t *testing.T) (string, *sql.Conn) {
	t.Helper()
	url := Database(t)
	direct := connect(t, url)
	if _, err := direct.ExecContext(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Fatal(err)
	}
	return url, direct
}

// count counts the rows that are committed. Those that are not are locked.
func count(t *testing.T, conn *sql.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), `SELECT count(*) FROM t WITH (READPAST)`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// insert inserts a row and commits it, in so many ways to send a COMMIT.
var insert = map[string]func(ctx context.Context, conn *sql.Conn) error{
	"transaction manager": func(ctx context.Context, conn *sql.Conn) error {
		return inTransaction(ctx, conn, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (@p1)`, 1)
			return err
		})
	},
	"batch": func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, `BEGIN TRANSACTION; INSERT INTO t VALUES (1); IF @@TRANCOUNT > 0 commit`)
		return err
	},
	"call": func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, `BEGIN TRANSACTION; INSERT INTO t VALUES (@p1); COMMIT TRANSACTION`, 1)
		return err
	},
}

func inTransaction(ctx context.Context, conn *sql.Conn, do func(tx *sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestProxy(t *testing.T) {
	url, direct := tabled(t)
	rows := 0
	for name, insert := range insert {
		for fault, c := range map[commitproxy.Fault]struct {
			fails     bool
			committed int
		}{
			commitproxy.None:        {false, 1},
			commitproxy.CutBefore:   {true, 0},
			commitproxy.LoseReply:   {true, 1},
			commitproxy.DeliverLate: {true, 0},
		} {
			proxy, through := NewTestProxy(t, url)
			conn := connect(t, through)
			if err := insert(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			rows++
			proxy.Next(fault)
			if err := insert(t.Context(), conn); (err != nil) != c.fails {
				t.Errorf("%s, fault %d: error is %v", name, fault, err)
			}
			if c.fails {
				if err := conn.PingContext(t.Context()); err == nil {
					t.Errorf("%s, fault %d: the client's connection still works", name, fault)
				}
			}
			rows += c.committed
			if n := count(t, direct); n != rows {
				t.Fatalf("%s, fault %d: %d rows are committed, want %d", name, fault, n, rows)
			}
			if fault == commitproxy.DeliverLate {
				if n := proxy.Deliver(); n != 1 {
					t.Errorf("%s: %d commits delivered late, want 1", name, n)
				}
				rows++
				if n := count(t, direct); n != rows {
					t.Errorf("%s: %d rows after a late commit, want %d", name, n, rows)
				}
			}
			if n := proxy.Commits(); n != 2 {
				t.Errorf("%s, fault %d: %d commits were seen, want 2", name, fault, n)
			}
		}
	}
}

// TestProxyCancelled: a client that gives up its late COMMIT does not end it, and neither does the end of
// the client.
func TestProxyCancelled(t *testing.T) {
	url, direct := tabled(t)
	proxy, through := NewTestProxy(t, url)
	conn := connect(t, through)
	for i, insert := range []func(ctx context.Context, conn *sql.Conn) error{insert["transaction manager"], insert["batch"]} {
		if i > 0 {
			conn = connect(t, through)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		proxy.Intercept(func(statements []string) commitproxy.Fault {
			if !commits(statements[0]) {
				return commitproxy.None
			}
			cancel()
			return commitproxy.DeliverLate
		})
		if err := insert(ctx, conn); err == nil {
			t.Error("a commit that was held back: no error")
		}
		if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
			t.Error(err)
		}
		proxy.Intercept(nil)
		if n := count(t, direct); n != i {
			t.Fatalf("%d rows before the commit is delivered, want %d", n, i)
		}
		proxy.Deliver()
		if n := count(t, direct); n != i+1 {
			t.Fatalf("%d rows after the commit was delivered, want %d", n, i+1)
		}
	}
}

// TestProxyCopy: a bulk copy of many packets passes, and is no COMMIT.
func TestProxyCopy(t *testing.T) {
	proxy, through := NewTestProxy(t, Database(t))
	conn := connect(t, through)
	if _, err := conn.ExecContext(t.Context(), `CREATE TABLE t (n int, body nvarchar(max))`); err != nil {
		t.Fatal(err)
	}
	const rows = 500
	body := strings.Repeat("commit;", 1000)
	before := proxy.Commits()
	err := inTransaction(t.Context(), conn, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(t.Context(), mssql.CopyIn("t", mssql.BulkOptions{}, "n", "body"))
		if err != nil {
			return err
		}
		for i := range rows {
			if _, err := stmt.ExecContext(t.Context(), i, body); err != nil {
				return err
			}
		}
		if _, err := stmt.ExecContext(t.Context()); err != nil {
			return err
		}
		return stmt.Close()
	})
	if n := count(t, conn); err != nil || n != rows || proxy.Commits() != before+1 {
		t.Errorf("copied %d rows, %v; %d commits", n, err, proxy.Commits()-before)
	}
	var read string
	if err := conn.QueryRowContext(t.Context(), `SELECT body FROM t WHERE n = @p1 AND body = @p2`, 7, body).Scan(&read); err != nil || read != body {
		t.Errorf("%d bytes came back, %v", len(read), err)
	}
}

// TestProxyAnswers: answers are paired with statements, and show what the server has done, also with the
// COMMIT of a transaction that it has rolled back.
func TestProxyAnswers(t *testing.T) {
	proxy, through := NewTestProxy(t, Database(t))
	conn := connect(t, through)
	if _, err := conn.ExecContext(t.Context(), `CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)`); err != nil {
		t.Fatal(err)
	}
	var seen []string
	proxy.Answers(func(statements, tags []string) {
		seen = append(seen, strings.Join(statements, "|")+" -> "+strings.Join(tags, "|"))
	})
	err := inTransaction(t.Context(), conn, func(tx *sql.Tx) error {
		for _, n := range []int{2, 7} {
			if _, err := tx.ExecContext(t.Context(), `UPDATE t SET n = 3 WHERE n = @p1`, n); err != nil {
				return err
			}
			var one int
			err := tx.QueryRowContext(t.Context(), `UPDATE t SET n = n OUTPUT 1 WHERE n = @p1`, n+1).Scan(&one)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), `SELECT 1/0`); err == nil {
		t.Error("no error")
	}
	if _, err := conn.ExecContext(t.Context(), `DELETE FROM t`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"BEGIN TRANSACTION -> BEGIN",
		"UPDATE t SET n = 3 WHERE n = @p1 -> UPDATE 1",
		"UPDATE t SET n = 3 WHERE n = @p1 -> UPDATE 0",
		"UPDATE t SET n = n OUTPUT 1 WHERE n = @p1 -> UPDATE 1",
		"UPDATE t SET n = n OUTPUT 1 WHERE n = @p1 -> UPDATE 0",
		"COMMIT -> COMMIT",
		"DELETE FROM t -> DELETE 2",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("%q is not among %q", want, seen)
		}
	}
}

// TestProxyIntercept: statements can be held up, and what is no COMMIT can be cut.
func TestProxyIntercept(t *testing.T) {
	url, _ := tabled(t)
	proxy, through := NewTestProxy(t, url)
	conn := connect(t, through)
	for name, insert := range insert {
		var seen []string
		proxy.Intercept(func(statements []string) commitproxy.Fault {
			seen = append(seen, statements...)
			return commitproxy.None
		})
		if err := insert(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if text := strings.ToLower(strings.Join(seen, "; ")); !strings.Contains(text, "begin") || !strings.Contains(text, "insert into t") || !strings.Contains(text, "commit") {
			t.Errorf("%s: saw %q", name, text)
		}
	}

	held, release := make(chan struct{}), make(chan struct{})
	proxy.Intercept(func([]string) commitproxy.Fault { close(held); <-release; return commitproxy.CutBefore })
	over := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(t.Context(), `SELECT 1`)
		over <- err
	}()
	<-held
	select {
	case err := <-over:
		t.Errorf("a query that is held up ended: %v", err)
	default:
	}
	close(release)
	if err := <-over; err == nil {
		t.Error("a query that was cut off did not fail")
	}
}

// TestProxyEncryption: a client that asks for encryption is cut off.
func TestProxyEncryption(t *testing.T) {
	url := Database(t)
	_, through := NewTestProxy(t, url)
	for _, encrypt := range []string{"true", "false", "strict"} {
		db, err := sql.Open("sqlserver", strings.Replace(through, "encrypt=disable", "encrypt="+encrypt, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.PingContext(t.Context()); err == nil {
			t.Errorf("encrypt=%s: connected", encrypt)
		}
	}
}
