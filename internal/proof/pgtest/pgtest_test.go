//go:build postgres

package pgtest_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
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
	os.Exit(pgtest.Run(m))
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func count(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM t`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
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

// insert inserts a row and commits it, in so many ways to send a COMMIT.
var insert = map[string]func(ctx context.Context, conn *pgx.Conn) error{
	"simple": func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO t VALUES ($1)`, 1)
			return err
		})
	},
	"several": func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `BEGIN; INSERT INTO t VALUES (1); commit`)
		return err
	},
	"prepared": func(ctx context.Context, conn *pgx.Conn) error {
		var b pgx.Batch
		for _, sql := range []string{`BEGIN`, `INSERT INTO t VALUES (1)`, `COMMIT`} {
			b.Queue(sql)
		}
		return conn.SendBatch(ctx, &b).Close()
	},
}

func TestProxy(t *testing.T) {
	url := pgtest.Database(t)
	direct := connect(t, url)
	if _, err := direct.Exec(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Fatal(err)
	}
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
			proxy, through := pgtest.NewTestProxy(t, url)
			conn := connect(t, through)
			if err := insert(t.Context(), conn); err != nil {
				t.Fatal(err)
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

func TestProxyCopy(t *testing.T) {
	_, through := pgtest.NewTestProxy(t, pgtest.Database(t))
	conn := connect(t, through)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t (n int, body text)`); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("commit;", 1000)
	const rows = 5000
	n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"n", "body"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
		return []any{i, body}, nil
	}))
	if err != nil || n != rows || count(t, conn) != rows {
		t.Errorf("copied %d rows, %v", n, err)
	}
}

// Answers pairs statements with what came of them.
func TestProxyAnswers(t *testing.T) {
	proxy, through := pgtest.NewTestProxy(t, pgtest.Database(t))
	conn := connect(t, through)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Fatal(err)
	}
	var seen []string
	proxy.Answers(func(statements, tags []string) {
		seen = append(seen, strings.Join(statements, "|")+" -> "+strings.Join(tags, "|"))
	})
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}})); err != nil {
		t.Fatal(err)
	}
	var b pgx.Batch
	for _, sql := range []string{`BEGIN`, `UPDATE t SET n = 3 WHERE n = 7`, `UPDATE t SET n = 3 WHERE n = 2`, `COMMIT`} {
		b.Queue(sql)
	}
	if err := conn.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("no error")
	}
	if _, err := conn.Exec(t.Context(), `DELETE FROM t`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`copy "t" ( "n" ) from stdin binary; -> COPY 2`,
		"BEGIN|UPDATE t SET n = 3 WHERE n = 7|UPDATE t SET n = 3 WHERE n = 2|COMMIT -> BEGIN|UPDATE 0|UPDATE 1|COMMIT",
		"DELETE FROM t -> DELETE 2",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("%q is not among %q", want, seen)
		}
	}
}

// Intercept sees statements however they are sent, can hold them up, and can
// cut what is no COMMIT.
func TestProxyIntercept(t *testing.T) {
	proxy, through := pgtest.NewTestProxy(t, pgtest.Database(t))
	conn := connect(t, through)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Fatal(err)
	}
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
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT 1`)
		done <- err
	}()
	<-held
	select {
	case err := <-done:
		t.Errorf("a query that is held up ended: %v", err)
	default:
	}
	close(release)
	if err := <-done; err == nil {
		t.Error("a query that was cut off did not fail")
	}
}

func TestProxyStall(t *testing.T) {
	proxy, through := pgtest.NewTestProxy(t, pgtest.Database(t))
	conn := connect(t, through)
	proxy.Stall()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT 1`)
		done <- err
	}()
	timer := time.NewTimer(50 * time.Millisecond)
	select {
	case err := <-done:
		t.Errorf("a query through a stalled proxy ended: %v", err)
	case <-timer.C:
	}
	proxy.Resume()
	if err := <-done; err != nil {
		t.Errorf("a query after the stall: %v", err)
	}
	proxy.Cut()
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("a connection that was cut still works")
	}
}

func TestRestart(t *testing.T) {
	s := pgtest.New(t, &pgtest.Config{Durable: true, Settings: []string{"max_connections = 20"}})
	url, err := s.CreateDatabase(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t (n int); INSERT INTO t VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("the server still answers")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	conn = connect(t, url)
	if n := count(t, conn); n != 1 {
		t.Errorf("%d rows after the restart, want 1", n)
	}
	var fsync, connections string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('fsync'), current_setting('max_connections')`).Scan(&fsync, &connections); err != nil || fsync != "on" || connections != "20" {
		t.Errorf("fsync %s, max_connections %s, %v", fsync, connections, err)
	}
}

// A server does not outlive tests that are killed.
func TestKilled(t *testing.T) {
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
