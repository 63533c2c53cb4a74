package check

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	mssql "github.com/microsoft/go-mssqldb"
)

// sessions are connections to a database server, with the settings of the store's own, and a table
// that they compete for.
type sessions struct {
	db    *sql.DB
	words words
	table string
}

// words are a server's SQL and error numbers. In statements {rows} stands for the table and {id}
// for the number of a row.
type words struct {
	create   string // makes the table
	insert   string // a row whose n is 0
	read     string // → n
	set      string // sets n to 1
	swap     string // sets n to 1 where it is 0
	lock     string // locks a row as the fence does → a number
	hints    string // locks a row by what handlers may rely on, and Sluice does not → a number; empty: there is no such thing
	long     string // inserts a row whose name, of at most three characters, is too long
	time     string // inserts a row with the time of instant
	readTime string // → that time

	// patience has the statements of a transaction wait two seconds for a lock. It stands within
	// the transaction: a pooler keeps what is set outside of it for another program.
	patience string
	session  string // → the number of the session
	kill     string // ends the session {id}

	// mark marks a transaction as the store marks that of a handler; marked reports whether the
	// mark is still there; ends are statements that end the transaction and begin another, or none.
	mark   func(ctx context.Context, tx *sql.Tx) (mark string, err error)
	marked func(ctx context.Context, tx *sql.Tx, mark string) (bool, error)
	ends   []string

	aborts []string // statements that fail, and have the server roll the transaction back

	snapshot *sql.TxOptions // of the audit
	readOnly bool           // a transaction can be read-only

	duplicate, timeout, deadlock, tooLong, refused, mayNotKill []string // numbers of errors

	watch  time.Duration // a statement that runs for longer counts as one that waits
	apart  time.Duration // how long a step may take beside one that is paused
	paused time.Duration // how long a claim may take that waits for a step that is paused

	next map[string]string // what to do, by check
}

// instant is a time with microseconds.
var instant = time.Date(2026, 1, 2, 3, 4, 5, 123_457_000, time.UTC)

// portable are the statements that every server understands.
var portable = words{
	insert:   "INSERT INTO {rows} (id, n) VALUES ({id}, 0)",
	read:     "SELECT n FROM {rows} WHERE id = {id}",
	set:      "UPDATE {rows} SET n = 1 WHERE id = {id}",
	swap:     "UPDATE {rows} SET n = 1 WHERE id = {id} AND n = 0",
	long:     "INSERT INTO {rows} (id, n, name) VALUES ({id}, 0, 'long')",
	time:     "INSERT INTO {rows} (id, n, stored_at) VALUES ({id}, 0, '2026-01-02 03:04:05.123457')",
	readTime: "SELECT stored_at FROM {rows} WHERE id = {id}",
	watch:    time.Second,
}

// statementLimit is how long a statement may take beside a transaction that is in progress: less
// than the server waits before it ends that.
func (w *words) statementLimit() time.Duration { return max(apartWithin, w.apart) }

// applies reports whether the server has what a check is about.
func (w *words) applies(check string) bool {
	switch check {
	case "db.hints":
		return w.hints != ""
	case "db.mark":
		return w.mark != nil
	case "db.readonly":
		return w.readOnly
	}
	return true
}

// errorNumber is the number of a server's error; empty: it is none.
func errorNumber(err error) string {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return strconv.Itoa(int(e.Number))
	}
	if e, ok := errors.AsType[mssql.Error](err); ok {
		return strconv.Itoa(int(e.Number))
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

func isOne(err error, numbers []string) bool { return slices.Contains(numbers, errorNumber(err)) }

// session is one connection, in a transaction or not.
type session struct {
	sessions *sessions
	conn     *sql.Conn
	tx       *sql.Tx
	running  sync.WaitGroup
}

// open is what has happened in two sessions before a check.
type open int

const (
	nothingOpen open = iota
	aBegun           // a has begun a transaction
	bothBegun        // both have
	aChanged         // a has begun a transaction and changed the row
)

// pair runs fn with two sessions and the number of a row. What they leave open is rolled back, and
// their connections are closed.
func (s *sessions) pair(ctx context.Context, state open, fn func(ctx context.Context, a, b *session, id int64) Finding) Finding {
	ctx, cancel := context.WithCancel(ctx)
	var two [2]*session
	defer func() {
		cancel()
		for _, c := range two {
			if c != nil {
				c.close()
			}
		}
	}()
	for i := range two {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return failed("connecting", err)
		}
		two[i] = &session{sessions: s, conn: conn}
	}
	id := effect()
	if _, err := two[0].exec(ctx, s.words.insert, id); err != nil {
		return failed("inserting a row", err)
	}
	for _, c := range two[:map[open]int{aBegun: 1, bothBegun: 2, aChanged: 1}[state]] {
		if err := c.begin(ctx); err != nil {
			return failed("beginning a transaction", err)
		}
	}
	if state == aChanged {
		if _, err := two[0].exec(ctx, s.words.set, id); err != nil {
			return failed("changing a row", err)
		}
	}
	return fn(ctx, two[0], two[1], id)
}

func (c *session) close() {
	c.running.Wait()
	if c.tx != nil {
		_ = c.tx.Rollback() // fails if it is over
	}
	// Its settings and its transaction must not be the next check's.
	_ = c.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// begin begins a transaction as the store does.
func (c *session) begin(ctx context.Context) error {
	return c.beginAs(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

func (c *session) beginAs(ctx context.Context, opts *sql.TxOptions) (err error) {
	c.tx, err = c.conn.BeginTx(ctx, opts)
	return err
}

// begun begins a transaction in both sessions.
func begun(ctx context.Context, a, b *session) error {
	return errors.Join(a.begin(ctx), b.begin(ctx))
}

func (s *sessions) text(statement string, id int64) string {
	return strings.NewReplacer("{rows}", s.table, "{id}", strconv.FormatInt(id, 10)).Replace(statement)
}

// exec runs a statement and returns how many rows it changed.
func (c *session) exec(ctx context.Context, statement string, id int64) (int64, error) {
	exec := c.conn.ExecContext
	if c.tx != nil {
		exec = c.tx.ExecContext
	}
	result, err := exec(ctx, c.sessions.text(statement, id))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// number runs a statement and returns the number that it returns.
func (c *session) number(ctx context.Context, statement string, id int64) (n int64, err error) {
	err = c.row(ctx, statement, id).Scan(&n)
	return n, err
}

func (c *session) row(ctx context.Context, statement string, id int64) *sql.Row {
	if c.tx != nil {
		return c.tx.QueryRowContext(ctx, c.sessions.text(statement, id))
	}
	return c.conn.QueryRowContext(ctx, c.sessions.text(statement, id))
}

// pending is a statement that runs on a goroutine.
type pending struct {
	done chan struct{}
	n    int64
	err  error
}

// start runs exec or number on a goroutine, which pair waits for.
func (c *session) start(ctx context.Context, run func(context.Context, string, int64) (int64, error), statement string, id int64) *pending {
	p := &pending{done: make(chan struct{})}
	c.running.Go(func() {
		defer close(p.done)
		p.n, p.err = run(ctx, statement, id)
	})
	return p
}

// waits reports whether the statement is still running after a time.
func (p *pending) waits(within time.Duration) bool {
	select {
	case <-p.done:
		return false
	case <-time.After(within):
		return true
	}
}

func (p *pending) result() (int64, error) {
	<-p.done
	return p.n, p.err
}
