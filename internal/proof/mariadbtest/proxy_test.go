//go:build mariadb

package mariadbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
	"github.com/sluice-go/sluice/internal/proof/mariadbtest"
	"github.com/sluice-go/sluice/sqlstore"
)

func TestMain(m *testing.M) { os.Exit(mariadbtest.Run(m)) }

// connect opens a connection of its own.
func connect(t *testing.T, url string) *sql.Conn {
	t.Helper()
	connector, err := sqlstore.MySQLConnector(url)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); db.Close() })
	return conn
}

func execute(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func count(t *testing.T, conn *sql.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM t`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// insert inserts a row and commits it, in so many ways to send a COMMIT.
var insert = map[string]func(ctx context.Context, conn *sql.Conn) error{
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
}

func TestProxy(t *testing.T) {
	url := mariadbtest.Database(t)
	direct := connect(t, url)
	execute(t, direct, `CREATE TABLE t (n int)`)
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
			proxy, through := mariadbtest.NewTestProxy(t, url)
			conn := connect(t, through)
			if err := insert(t.Context(), conn); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rows++
			proxy.Next(fault)
			if err := insert(t.Context(), conn); (err != nil) != c.fails {
				t.Errorf("%s, fault %d: error is %v", name, fault, err)
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

// Answers pairs statements with what came of them, also where the answer has many messages.
func TestProxyAnswers(t *testing.T) {
	url := mariadbtest.Database(t)
	execute(t, connect(t, url), `SET GLOBAL max_allowed_packet = 64 * 1024 * 1024`)
	proxy, through := mariadbtest.NewTestProxy(t, url)
	conn := connect(t, through)
	execute(t, conn, `CREATE TABLE t (n int, body LONGTEXT)`)
	seen := make(map[string]string)
	proxy.Answers(func(statements, tags []string) {
		seen[strings.Join(statements, "|")[:min(20, len(strings.Join(statements, "|")))]] = strings.Join(tags, "|")
	})
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
	execute(t, conn, "\n\tUPDATE t SET n = 3 WHERE n = 7", `UPDATE t SET n = 3`)
	var failed *mysql.MySQLError
	if _, err := conn.ExecContext(t.Context(), `SELECT nothing FROM t`); !errors.As(err, &failed) {
		t.Errorf("error is %v", err)
	}
	execute(t, conn, `DELETE FROM t`)
	for text, want := range map[string]string{
		`INSERT INTO t VALUES`:   "INSERT 2",
		`SELECT body FROM t O`:   "SELECT 2",
		`SELECT n FROM t WHER`:   "SELECT 1",
		"\n\tUPDATE t SET n = 3": "UPDATE 0",
		`UPDATE t SET n = 3`:     "UPDATE 2",
		`SELECT nothing FROM `:   "",
		`DELETE FROM t`:          "DELETE 2",
	} {
		if got, ok := seen[text[:min(20, len(text))]]; !ok || got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The rows of LOAD DATA LOCAL INFILE are no commands.
func TestProxyLoadData(t *testing.T) {
	proxy, through := mariadbtest.NewTestProxy(t, mariadbtest.Database(t))
	conn := connect(t, through)
	execute(t, conn, `CREATE TABLE t (body VARCHAR(100))`)
	const rows = 1_000_000 // more packets than have a number
	mysql.RegisterReaderHandler("rows", func() io.Reader { return strings.NewReader(strings.Repeat("\x03commit\n", rows)) })
	defer mysql.DeregisterReaderHandler("rows")
	execute(t, conn, `LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE t`)
	if n := count(t, conn); n != rows || proxy.Commits() != 0 {
		t.Errorf("%d rows, %d commits", n, proxy.Commits())
	}
}

// Intercept sees statements however they are sent, can hold them up, and can cut what is no COMMIT.
func TestProxyIntercept(t *testing.T) {
	proxy, through := mariadbtest.NewTestProxy(t, mariadbtest.Database(t))
	conn := connect(t, through)
	execute(t, conn, `CREATE TABLE t (n int)`)
	for name, insert := range insert {
		var seen []string
		proxy.Intercept(func(statements []string) commitproxy.Fault {
			seen = append(seen, strings.ToLower(strings.TrimSpace(statements[0])))
			return commitproxy.None
		})
		if err := insert(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if len(seen) < 3 || !slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, "insert into t") }) || !strings.HasPrefix(seen[len(seen)-1], "commit") {
			t.Errorf("%s: saw %q", name, seen)
		}
	}
	proxy.Intercept(func([]string) commitproxy.Fault { return commitproxy.CutBefore })
	if _, err := conn.ExecContext(t.Context(), `SELECT 1`); err == nil {
		t.Error("a query that was cut off did not fail")
	}
}

func TestProxyStall(t *testing.T) {
	proxy, through := mariadbtest.NewTestProxy(t, mariadbtest.Database(t))
	conn := connect(t, through)
	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := conn.ExecContext(ctx, `SELECT 1`); err == nil {
		t.Error("a query through a stalled proxy ended")
	}
	proxy.Resume()
	proxy.Cut()
	if err := conn.PingContext(t.Context()); err == nil {
		t.Error("a connection that was cut still works")
	}
}

// A server keeps its data over a crash.
func TestRestart(t *testing.T) {
	s := mariadbtest.New(t, &mariadbtest.Config{Durable: true})
	url, err := s.CreateDatabase(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	execute(t, conn, `CREATE TABLE t (n int)`, `INSERT INTO t VALUES (1)`)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := conn.PingContext(t.Context()); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, connect(t, url)); n != 1 {
		t.Errorf("%d rows after the restart, want 1", n)
	}
}
