package commitproxy

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Suite tests the [Wire] of a database with a real server: each method is a test.
type Suite struct {
	Database func(t testing.TB) string // makes a database and returns its URL
	Proxy    func(t testing.TB, url string) (*Proxy, string)
	Open     func(url string) (*sql.DB, error)

	// Insert inserts a row into the table t (n int) and commits it, in so many ways to send a
	// COMMIT.
	Insert map[string]func(ctx context.Context, conn *sql.Conn) error

	// Count counts the rows of t that are committed, and waits for no others.
	Count string
}

// Connect opens a connection, which ends with the test.
func (s *Suite) Connect(t *testing.T, url string) *sql.Conn {
	t.Helper()
	db, err := s.Open(url)
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

// Rows returns the number of rows of t that are committed.
func (s *Suite) Rows(t *testing.T, conn *sql.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), s.Count).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Execute executes statements, which must not fail.
func Execute(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// ConnectProxied makes a database, and connects to it through a proxy.
func (s *Suite) ConnectProxied(t *testing.T, statements ...string) (*Proxy, *sql.Conn) {
	t.Helper()
	proxy, through := s.Proxy(t, s.Database(t))
	conn := s.Connect(t, through)
	Execute(t, conn, statements...)
	return proxy, conn
}

// Faults: each fault does to a COMMIT what it promises, however the COMMIT is sent.
func (s *Suite) Faults(t *testing.T) {
	url := s.Database(t)
	direct := s.Connect(t, url)
	Execute(t, direct, `CREATE TABLE t (n int)`)
	rows := 0
	expect := func(what string, more int) {
		t.Helper()
		rows += more
		if n := s.Rows(t, direct); n != rows {
			t.Fatalf("%s: %d rows are committed, want %d", what, n, rows)
		}
	}
	for name, insert := range s.Insert {
		for fault, committed := range map[Fault]int{None: 1, CutBefore: 0, LoseReply: 1, DeliverLate: 0} {
			what := fmt.Sprintf("%s, fault %d", name, fault)
			proxy, through := s.Proxy(t, url)
			conn := s.Connect(t, through)
			if err := insert(t.Context(), conn); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			expect(what+", before it", 1)
			proxy.Next(fault)
			if err := insert(t.Context(), conn); (err != nil) != (fault != None) {
				t.Errorf("%s: error is %v", what, err)
			}
			if err := conn.PingContext(t.Context()); (err != nil) != (fault != None) {
				t.Errorf("%s: the error of the connection after it is %v", what, err)
			}
			expect(what, committed)
			if fault == DeliverLate {
				if n := proxy.Deliver(); n != 1 {
					t.Errorf("%s: %d commits delivered late, want 1", what, n)
				}
				expect(what+", delivered", 1)
			}
			if n := proxy.Commits(); n != 2 {
				t.Errorf("%s: %d commits were seen, want 2", what, n)
			}
		}
	}
}

var transaction = regexp.MustCompile(`(begin|start transaction).*insert into t.*commit( work| transaction)?;?$`)

// Intercept: the proxy shows statements however they are sent, can hold them up, and can cut what
// is no COMMIT.
func (s *Suite) Intercept(t *testing.T) {
	proxy, conn := s.ConnectProxied(t, `CREATE TABLE t (n int)`)
	for name, insert := range s.Insert {
		var seen []string
		proxy.Intercept(func(statements []string) Fault {
			seen = append(seen, statements...)
			return None
		})
		if err := insert(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if !transaction.MatchString(strings.ToLower(strings.Join(seen, "; "))) {
			t.Errorf("%s: saw %q", name, seen)
		}
	}
	held, release := make(chan struct{}), make(chan struct{})
	proxy.Intercept(func([]string) Fault { close(held); <-release; return CutBefore })
	over := query(t, conn)
	<-held
	select {
	case err := <-over:
		close(release)
		t.Fatalf("a query that is held up ended: %v", err)
	default:
	}
	close(release)
	if err := <-over; err == nil {
		t.Error("a query that was cut off did not fail")
	}
}

// Stall: nothing passes a proxy that is stalled, and all of it passes later, unless it is cut.
func (s *Suite) Stall(t *testing.T) {
	proxy, conn := s.ConnectProxied(t)
	proxy.Stall()
	over := query(t, conn)
	select {
	case err := <-over:
		t.Fatalf("a query through a stalled proxy ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	proxy.Resume()
	if err := <-over; err != nil {
		t.Errorf("a query after the stall: %v", err)
	}
	proxy.Cut()
	if err := conn.PingContext(t.Context()); err == nil {
		t.Error("a connection that was cut still works")
	}
}

func query(t *testing.T, conn *sql.Conn) <-chan error {
	over := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(t.Context(), `SELECT 1`)
		over <- err
	}()
	return over
}

// ExpectAnswers fails the test unless the proxy pairs the statements of do with what came of them.
// want has some of the pairs, as "statement|statement -> tag|tag".
func ExpectAnswers(t *testing.T, proxy *Proxy, do func(), want ...string) {
	t.Helper()
	var seen []string
	proxy.Answers(func(statements, tags []string) {
		seen = append(seen, strings.Join(statements, "|")+" -> "+strings.Join(tags, "|"))
	})
	do()
	for _, pair := range want {
		if !slices.Contains(seen, pair) {
			t.Errorf("%q is not among %q", pair, seen)
		}
	}
}
