package mariadbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/sqlstore"
)

var proxied = &commitproxy.Suite{
	Database: mariadbtest.Database, Proxy: mariadbtest.NewTestProxy,
	Open: func(url string) (*sql.DB, error) {
		connector, err := sqlstore.MySQLConnector(url)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	},
	Insert: map[string]func(ctx context.Context, conn *sql.Conn) error{
		"by the driver": func(ctx context.Context, conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (?)`, 1); err != nil {
				return err
			}
			return tx.Commit()
		},
		"as text": func(ctx context.Context, conn *sql.Conn) error {
			for _, text := range []string{`BEGIN`, `INSERT INTO t VALUES (1)`, ` commit work`} {
				if _, err := conn.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return nil
		},
		"prepared": func(ctx context.Context, conn *sql.Conn) error {
			for _, text := range []string{`BEGIN`, `INSERT INTO t VALUES (1)`, `COMMIT`} {
				stmt, err := conn.PrepareContext(ctx, text)
				if err != nil {
					return err
				}
				if _, err := stmt.ExecContext(ctx); err != nil {
					return errors.Join(err, stmt.Close())
				}
				if err := stmt.Close(); err != nil {
					return err
				}
			}
			return nil
		},
	},
	Count: `SELECT COUNT(*) FROM t`,
}

func TestProxy(t *testing.T)          { proxied.Faults(t) }
func TestProxyIntercept(t *testing.T) { proxied.Intercept(t) }
func TestProxyStall(t *testing.T)     { proxied.Stall(t) }

// Answers pairs statements with what came of them, also where the answer has many messages.
func TestProxyAnswers(t *testing.T) {
	commitproxy.Execute(t, proxied.Connect(t, mariadbtest.Database(t)), `SET GLOBAL max_allowed_packet = 64 * 1024 * 1024`)
	proxy, conn := proxied.ConnectProxied(t, `CREATE TABLE t (n int, body LONGTEXT)`)
	commitproxy.ExpectAnswers(t, proxy, func() {
		stmt, err := conn.PrepareContext(t.Context(), `INSERT INTO t VALUES (?, ?), (?, ?)`)
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		// A message of several packets, and one that looks like the end of the rows.
		long := strings.Repeat("commit;", 2_500_000)
		if _, err := stmt.ExecContext(t.Context(), 1, long, 2, nil); err != nil {
			t.Fatal(err)
		}
		query := func(text string, args ...any) (n int, length int) {
			rows, err := conn.QueryContext(t.Context(), text, args...)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var body sql.NullString
				if err := rows.Scan(&body); err != nil {
					t.Fatal(err)
				}
				n, length = n+1, length+len(body.String)
			}
			return n, length
		}
		if n, length := query(`SELECT body FROM t ORDER BY n`); n != 2 || length != len(long) {
			t.Errorf("read %d rows of %d bytes", n, length)
		}
		selected, err := conn.PrepareContext(t.Context(), `SELECT n FROM t WHERE n > ?`)
		if err != nil {
			t.Fatal(err)
		}
		defer selected.Close()
		for range 2 { // the second time without the columns
			rows, err := selected.QueryContext(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
		}
		commitproxy.Execute(t, conn, "\n\tUPDATE t SET n = 3 WHERE n = 7", `UPDATE t SET n = 3`)
		var failed *mysql.MySQLError
		if _, err := conn.ExecContext(t.Context(), `SELECT nothing FROM t`); !errors.As(err, &failed) {
			t.Errorf("error is %v", err)
		}
		commitproxy.Execute(t, conn, `DELETE FROM t`)
	},
		"INSERT INTO t VALUES (?, ?), (?, ?) -> INSERT 2",
		"SELECT body FROM t ORDER BY n -> SELECT 2",
		"SELECT n FROM t WHERE n > ? -> SELECT 1",
		"\n\tUPDATE t SET n = 3 WHERE n = 7 -> UPDATE 0",
		"UPDATE t SET n = 3 -> UPDATE 2",
		"SELECT nothing FROM t -> ",
		"DELETE FROM t -> DELETE 2")
}

// The rows of LOAD DATA LOCAL INFILE are no commands.
func TestProxyLoadData(t *testing.T) {
	proxy, conn := proxied.ConnectProxied(t, `CREATE TABLE t (body VARCHAR(100))`)
	const rows = 1_000_000 // more packets than have a number
	mysql.RegisterReaderHandler("rows", func() io.Reader { return strings.NewReader(strings.Repeat("\x03commit\n", rows)) })
	defer mysql.DeregisterReaderHandler("rows")
	commitproxy.Execute(t, conn, `LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE t`)
	if n := proxied.Rows(t, conn); n != rows || proxy.Commits() != 0 {
		t.Errorf("%d rows, %d commits", n, proxy.Commits())
	}
}

// A server keeps its data over a crash.
func TestRestart(t *testing.T) {
	s := mariadbtest.New(t, &mariadbtest.Config{Durable: true})
	url, err := s.CreateDatabase(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	conn := proxied.Connect(t, url)
	commitproxy.Execute(t, conn, `CREATE TABLE t (n int)`, `INSERT INTO t VALUES (1)`)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := conn.PingContext(t.Context()); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := proxied.Rows(t, proxied.Connect(t, url)); n != 1 {
		t.Errorf("%d rows after the restart, want 1", n)
	}
}
