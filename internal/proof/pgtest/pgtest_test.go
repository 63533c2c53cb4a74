package pgtest_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/pgtest"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

func TestMain(m *testing.M) {
	testserver.Orphan(func() (string, error) {
		s, err := pgtest.Start(nil)
		if err != nil {
			return "", err
		}
		return s.Dir(), nil
	})
	os.Exit(m.Run())
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

var proxied = &commitproxy.Suite{
	Database: pgtest.Database, Proxy: pgtest.NewTestProxy,
	Open: func(url string) (*sql.DB, error) { return sql.Open("pgx", url) },
	Insert: map[string]func(ctx context.Context, conn *sql.Conn) error{
		"simple": func(ctx context.Context, conn *sql.Conn) error {
			return native(conn, func(conn *pgx.Conn) error {
				return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO t VALUES ($1)`, 1)
					return err
				})
			})
		},
		"several": func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, `BEGIN; INSERT INTO t VALUES (1); commit`)
			return err
		},
		"prepared": func(ctx context.Context, conn *sql.Conn) error {
			return batch(ctx, conn, `BEGIN`, `INSERT INTO t VALUES (1)`, `COMMIT`)
		},
	},
	Count: `SELECT count(*) FROM t`,
}

// native calls do with a connection of pgx.
func native(conn *sql.Conn, do func(conn *pgx.Conn) error) error {
	return conn.Raw(func(c any) error { return do(c.(*stdlib.Conn).Conn()) })
}

// batch sends statements together.
func batch(ctx context.Context, conn *sql.Conn, statements ...string) error {
	var b pgx.Batch
	for _, statement := range statements {
		b.Queue(statement)
	}
	return native(conn, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, &b).Close() })
}

func TestProxy(t *testing.T)          { proxied.Faults(t) }
func TestProxyIntercept(t *testing.T) { proxied.Intercept(t) }
func TestProxyStall(t *testing.T)     { proxied.Stall(t) }

// copyRows copies rows into the table t.
func copyRows(t *testing.T, conn *sql.Conn, n int, columns []string, row func(i int) ([]any, error)) {
	t.Helper()
	if err := native(conn, func(conn *pgx.Conn) error {
		copied, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, columns, pgx.CopyFromSlice(n, row))
		if copied != int64(n) {
			t.Errorf("copied %d rows, want %d", copied, n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestProxyCopy(t *testing.T) {
	_, conn := proxied.ConnectProxied(t, `CREATE TABLE t (n int, body text)`)
	body := strings.Repeat("commit;", 1000)
	const rows = 5000
	copyRows(t, conn, rows, []string{"n", "body"}, func(i int) ([]any, error) { return []any{i, body}, nil })
	if n := proxied.Rows(t, conn); n != rows {
		t.Errorf("%d rows, want %d", n, rows)
	}
}

// Answers pairs statements with what came of them.
func TestProxyAnswers(t *testing.T) {
	proxy, conn := proxied.ConnectProxied(t, `CREATE TABLE t (n int)`)
	commitproxy.ExpectAnswers(t, proxy, func() {
		copyRows(t, conn, 2, []string{"n"}, func(i int) ([]any, error) { return []any{1 + i}, nil })
		if err := batch(t.Context(), conn, `BEGIN`, `UPDATE t SET n = 3 WHERE n = 7`, `UPDATE t SET n = 3 WHERE n = 2`, `COMMIT`); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), `SELECT 1/0`); err == nil {
			t.Fatal("no error")
		}
		commitproxy.Execute(t, conn, `DELETE FROM t`)
	},
		`copy "t" ( "n" ) from stdin binary; -> COPY 2`,
		"BEGIN|UPDATE t SET n = 3 WHERE n = 7|UPDATE t SET n = 3 WHERE n = 2|COMMIT -> BEGIN|UPDATE 0|UPDATE 1|COMMIT",
		"DELETE FROM t -> DELETE 2")
}

func TestRestart(t *testing.T) {
	s := pgtest.New(t, &pgtest.Config{Durable: true, Settings: []string{"max_connections = 20"}})
	url, err := s.CreateDatabase(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	conn := proxied.Connect(t, url)
	commitproxy.Execute(t, conn, `CREATE TABLE t (n int)`, `INSERT INTO t VALUES (1)`)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), `SELECT 1`); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	conn = proxied.Connect(t, url)
	if n := proxied.Rows(t, conn); n != 1 {
		t.Errorf("%d rows after the restart, want 1", n)
	}
	var fsync, connections string
	if err := conn.QueryRowContext(t.Context(), `SELECT current_setting('fsync'), current_setting('max_connections')`).Scan(&fsync, &connections); err != nil || fsync != "on" || connections != "20" {
		t.Errorf("fsync %s, max_connections %s, %v", fsync, connections, err)
	}
}

// A server does not outlive tests that are killed.
func TestKilled(t *testing.T) {
	need.Postgres(t)
	var dir string
	testserver.Killed(t, func(said string) {
		dir = said
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("the server said %q: %v", said, err)
		}
	})
	eventually(t, "the server's directory is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
