package sqlservertest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

var proxied = &commitproxy.Suite{
	Database: Database, Proxy: NewTestProxy,
	Open: func(url string) (*sql.DB, error) { return sql.Open("sqlserver", url) },
	Insert: map[string]func(ctx context.Context, conn *sql.Conn) error{
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
	},
	Count: `SELECT count(*) FROM t WITH (READPAST)`,
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

func TestProxy(t *testing.T)          { proxied.Faults(t) }
func TestProxyIntercept(t *testing.T) { proxied.Intercept(t) }
func TestProxyStall(t *testing.T)     { proxied.Stall(t) }

// TestProxyCancelled: a client that gives up its late COMMIT does not end it, and neither does the
// end of the client.
func TestProxyCancelled(t *testing.T) {
	url := Database(t)
	direct := proxied.Connect(t, url)
	commitproxy.Execute(t, direct, `CREATE TABLE t (n int)`)
	proxy, through := NewTestProxy(t, url)
	for i, name := range []string{"transaction manager", "batch"} {
		conn := proxied.Connect(t, through)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		proxy.Intercept(func(statements []string) commitproxy.Fault {
			if !commits(statements[0]) {
				return commitproxy.None
			}
			cancel()
			return commitproxy.DeliverLate
		})
		if err := proxied.Insert[name](ctx, conn); err == nil {
			t.Error("a commit that was held back: no error")
		}
		if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
			t.Error(err)
		}
		proxy.Intercept(nil)
		if n := proxied.Rows(t, direct); n != i {
			t.Fatalf("%d rows before the commit is delivered, want %d", n, i)
		}
		proxy.Deliver()
		if n := proxied.Rows(t, direct); n != i+1 {
			t.Fatalf("%d rows after the commit was delivered, want %d", n, i+1)
		}
	}
}

// TestProxyCopy: a bulk copy of many packets passes, and is no COMMIT.
func TestProxyCopy(t *testing.T) {
	proxy, conn := proxied.ConnectProxied(t, `CREATE TABLE t (n int, body nvarchar(max))`)
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
	if n := proxied.Rows(t, conn); err != nil || n != rows || proxy.Commits() != before+1 {
		t.Errorf("copied %d rows, %v; %d commits", n, err, proxy.Commits()-before)
	}
	var read string
	if err := conn.QueryRowContext(t.Context(), `SELECT body FROM t WHERE n = @p1 AND body = @p2`, 7, body).Scan(&read); err != nil || read != body {
		t.Errorf("%d bytes came back, %v", len(read), err)
	}
}

// TestProxyAnswers: answers are paired with statements, and show what the server has done, also
// with the COMMIT of a transaction that it has rolled back.
func TestProxyAnswers(t *testing.T) {
	proxy, conn := proxied.ConnectProxied(t, `CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)`)
	commitproxy.ExpectAnswers(t, proxy, func() {
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
		commitproxy.Execute(t, conn, `DELETE FROM t`)
	},
		"BEGIN TRANSACTION -> BEGIN",
		"UPDATE t SET n = 3 WHERE n = @p1 -> UPDATE 1",
		"UPDATE t SET n = 3 WHERE n = @p1 -> UPDATE 0",
		"UPDATE t SET n = n OUTPUT 1 WHERE n = @p1 -> UPDATE 1",
		"UPDATE t SET n = n OUTPUT 1 WHERE n = @p1 -> UPDATE 0",
		"COMMIT -> COMMIT",
		"DELETE FROM t -> DELETE 2")
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
