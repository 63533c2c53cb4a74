package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"
)

// savepoint is the statements of a nested transaction.
type savepoint struct {
	set     string
	release string   // empty: none is needed
	undo    []string // back to it, and remove it
}

// standardSavepoint is that of SQL's standard.
func standardSavepoint(name string) savepoint {
	return savepoint{"SAVEPOINT " + name, "RELEASE SAVEPOINT " + name, []string{"ROLLBACK TO SAVEPOINT " + name, "RELEASE SAVEPOINT " + name}}
}

// The errors of a transaction's other faces.
var (
	errNestedOpen = errors.New("a nested transaction is open: use its own handle until it is committed or rolled back")
	errNestedLeft = errors.New("the handler has left a nested transaction open: commit it or roll it back before the handler returns")
	errNotYours   = errors.New("the transaction is the store's, which commits it with the checkpoint after the handler has returned nil: return an error to have it rolled back, or begin a nested transaction by Tx.DB")
)

// DB returns the transaction as a [*sql.DB], for libraries that begin transactions themselves, such
// as db.Transaction of gorm and RunInTx of bun. Statements run in this transaction. BeginTx makes a
// nested one, by a savepoint: its Commit keeps what it wrote for the store's commit, its Rollback
// undoes that alone. It has the isolation level of this one, and cannot be read-only.
//
// One nested transaction may be open at a time; meanwhile statements outside it fail, and nothing
// is lost by its Rollback that it does not contain. One that is still open when the handler returns
// makes the handler fail. After the handler everything fails. Close is the store's to call.
func (t *Tx) DB() *sql.DB {
	t.mu.Lock()
	db, closed := t.face(), t.closed
	t.mu.Unlock()
	if closed {
		_ = db.Close()
	}
	return db
}

// SQL returns the transaction as a [*sql.Tx], for code that wants one. Its Commit fails, and
// changes nothing. Its Rollback fails too, and so does then the handler, even if it returns nil:
// what the code gave up is not committed.
func (t *Tx) SQL() *sql.Tx {
	t.mu.Lock()
	closed := t.closed
	if t.plain == nil && closed {
		t.db = nil // it is closed
	}
	if t.plain == nil {
		// It cannot fail: the context does not end, and nothing is sent.
		t.plain, _ = t.face().BeginTx(context.WithValue(context.Background(), plainKey{}, true), nil)
	}
	db, plain := t.db, t.plain
	t.mu.Unlock()
	if closed {
		_, _ = plain.Rollback(), db.Close()
	}
	return plain
}

// plainKey is the key of the context's value that asks for the transaction itself.
type plainKey struct{}

// face returns the transaction as a database. The caller holds t.mu.
func (t *Tx) face() *sql.DB {
	if t.db == nil {
		t.db = sql.OpenDB(nestedConnector{t})
	}
	return t.db
}

// enter returns an error if a connection of the transaction's other faces may not run a statement
// now; nil is the transaction itself.
func (t *Tx) enter(c *nestedConn) error {
	t.mu.Lock()
	n, closed := t.nested, t.closed
	t.mu.Unlock()
	switch {
	case closed:
		return sql.ErrTxDone
	case n == nil || n.conn == c:
		return nil
	case n.mayEnd():
		return n.settle()
	}
	return errNestedOpen
}

// fail has the handler fail, whatever it returns.
func (t *Tx) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// leave returns an error if the handler has left a nested transaction open. One whose context has
// ended is rolled back.
func (t *Tx) leave() error {
	t.mu.Lock()
	n := t.nested
	t.mu.Unlock()
	switch {
	case n == nil:
		return nil
	case n.mayEnd():
		return n.settle()
	}
	return errNestedLeft
}

// close ends the other faces.
func (t *Tx) close() {
	t.mu.Lock()
	t.closed = true
	db, plain := t.db, t.plain
	t.mu.Unlock()
	if plain != nil {
		_ = plain.Rollback() // of database/sql's own state
	}
	if db != nil {
		_ = db.Close()
	}
}

// nestedConnector opens connections that are the transaction.
type nestedConnector struct{ tx *Tx }

// Connect implements [driver.Connector].
func (c nestedConnector) Connect(context.Context) (driver.Conn, error) {
	return &nestedConn{tx: c.tx}, nil
}

// Driver implements [driver.Connector].
func (c nestedConnector) Driver() driver.Driver { return c.tx.transaction.driver }

// nestedConn is the transaction as a connection.
type nestedConn struct{ tx *Tx }

// run readies the transaction for a statement.
func (c *nestedConn) run(ctx context.Context) error {
	if err := c.tx.enter(c); err != nil {
		return err
	}
	return c.tx.guard(ctx)
}

// ExecContext implements [driver.ExecerContext].
func (c *nestedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	result, err := c.tx.tx.ExecContext(ctx, query, arguments(args)...)
	return result, once(err)
}

// QueryContext implements [driver.QueryerContext].
func (c *nestedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return nestedRowsOf(c.tx.tx.QueryContext(ctx, query, arguments(args)...))
}

// PrepareContext implements [driver.ConnPrepareContext].
func (c *nestedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	stmt, err := c.tx.tx.PrepareContext(ctx, query)
	if err != nil {
		return nil, once(err)
	}
	return &nestedStmt{stmt, c}, nil
}

// BeginTx implements [driver.ConnBeginTx].
func (c *nestedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if ctx.Value(plainKey{}) != nil {
		return plainTx{c.tx}, nil
	}
	if level := sql.IsolationLevel(opts.Isolation); level != sql.LevelDefault || opts.ReadOnly {
		return nil, fmt.Errorf("begin a nested transaction: isolation level %v, read only %v: it has those of the store's transaction", level, opts.ReadOnly)
	}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	t := c.tx
	t.mu.Lock()
	if t.nested != nil {
		t.mu.Unlock()
		return nil, errNestedOpen
	}
	t.nestings++
	n := &nestedTx{conn: c, ctx: ctx, done: make(chan struct{}), savepoint: t.dialect.savepoint(fmt.Sprint("sluice_nested_", t.nestings))}
	t.nested = n
	t.mu.Unlock()
	if _, err := t.tx.ExecContext(ctx, n.savepoint.set); err != nil {
		t.mu.Lock()
		t.nested = nil
		t.mu.Unlock()
		return nil, fmt.Errorf("begin a nested transaction: %w", once(err))
	}
	return n, nil
}

// Begin implements [driver.Conn].
func (*nestedConn) Begin() (driver.Tx, error) { return nil, errNoContext }

// Prepare implements [driver.Conn].
func (*nestedConn) Prepare(string) (driver.Stmt, error) { return nil, errNoContext }

// Close implements [driver.Conn]: the connection is the transaction's.
func (*nestedConn) Close() error { return nil }

// Ping implements [driver.Pinger].
func (c *nestedConn) Ping(context.Context) error { return c.tx.enter(c) }

// CheckNamedValue leaves it to the database's driver how a Go value becomes an argument.
func (*nestedConn) CheckNamedValue(*driver.NamedValue) error { return nil }

// plainTx is the end of the transaction itself.
type plainTx struct{ tx *Tx }

// Commit implements [driver.Tx].
func (plainTx) Commit() error { return errNotYours }

// Rollback implements [driver.Tx].
func (p plainTx) Rollback() error {
	if p.tx.enter(nil) == sql.ErrTxDone {
		return nil
	}
	p.tx.fail(fmt.Errorf("the handler has rolled back: %w", errNotYours))
	return errNotYours
}

// nestedTx is a nested transaction.
type nestedTx struct {
	conn      *nestedConn
	ctx       context.Context // whose end makes database/sql roll back
	savepoint savepoint
	ends      bool          // its last statements run, or have run; under Tx.mu
	done      chan struct{} // closed when they have, or never will
}

// Commit implements [driver.Tx].
func (n *nestedTx) Commit() error {
	if n.savepoint.release == "" {
		return n.end("commit")
	}
	return n.end("commit", n.savepoint.release)
}

// Rollback implements [driver.Tx]. If it fails, so does the handler.
func (n *nestedTx) Rollback() error {
	err := n.end("roll back", n.savepoint.undo...)
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		n.conn.tx.fail(err)
	}
	return err
}

// mayEnd reports whether the nested transaction ends without its handle: its context has ended.
func (n *nestedTx) mayEnd() bool {
	n.conn.tx.mu.Lock()
	defer n.conn.tx.mu.Unlock()
	return n.ends || n.ctx.Err() != nil
}

// settle rolls back, or waits until another goroutine has, such as that of database/sql; what fails
// there fails the handler.
func (n *nestedTx) settle() error {
	err := n.Rollback()
	if errors.Is(err, sql.ErrTxDone) {
		<-n.done
		return nil
	}
	return err
}

// nestedEndsWithin bounds the end of a nested transaction, which has no context.
const nestedEndsWithin = 10 * time.Second

// end ends the nested transaction, once. It stays open until the statements have run: database/sql
// rolls back on a goroutine of its own, and what ran before would be undone with it.
func (n *nestedTx) end(what string, statements ...string) error {
	t := n.conn.tx
	t.mu.Lock()
	again, closed := n.ends, t.closed
	n.ends = true
	t.mu.Unlock()
	if again {
		return sql.ErrTxDone
	}
	defer func() {
		t.mu.Lock()
		t.nested = nil
		t.mu.Unlock()
		close(n.done)
	}()
	if closed {
		return sql.ErrTxDone
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), nestedEndsWithin)
	defer cancel()
	for _, statement := range statements {
		if _, err := t.tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s a nested transaction: %w", what, once(err))
		}
	}
	return nil
}

// nestedStmt is a statement that was prepared in the transaction.
type nestedStmt struct {
	stmt *sql.Stmt
	conn *nestedConn
}

func (s *nestedStmt) Close() error  { return s.stmt.Close() }
func (s *nestedStmt) NumInput() int { return -1 }

func (s *nestedStmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s *nestedStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

// ExecContext implements [driver.StmtExecContext].
func (s *nestedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.run(ctx); err != nil {
		return nil, err
	}
	result, err := s.stmt.ExecContext(ctx, arguments(args)...)
	return result, once(err)
}

// QueryContext implements [driver.StmtQueryContext].
func (s *nestedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.run(ctx); err != nil {
		return nil, err
	}
	return nestedRowsOf(s.stmt.QueryContext(ctx, arguments(args)...))
}

// CheckNamedValue is as that of the connection.
func (*nestedStmt) CheckNamedValue(*driver.NamedValue) error { return nil }

// nestedRows are rows of the transaction.
type nestedRows struct {
	rows  *sql.Rows
	types []*sql.ColumnType
	more  bool // there is another result set, and rows are at it
}

func nestedRowsOf(rows *sql.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, once(err)
	}
	r := &nestedRows{rows: rows}
	if r.types, err = rows.ColumnTypes(); err != nil {
		return nil, errors.Join(once(err), rows.Close())
	}
	return r, nil
}

// Columns implements [driver.Rows].
func (r *nestedRows) Columns() []string {
	names := make([]string, len(r.types))
	for i, t := range r.types {
		names[i] = t.Name()
	}
	return names
}

// Next implements [driver.Rows].
func (r *nestedRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return once(err)
		}
		r.more = r.rows.NextResultSet()
		return io.EOF
	}
	values := make([]any, len(dest))
	for i := range dest {
		values[i] = (*any)(&dest[i])
	}
	return once(r.rows.Scan(values...))
}

// Close implements [driver.Rows].
func (r *nestedRows) Close() error { return r.rows.Close() }

// HasNextResultSet implements [driver.RowsNextResultSet].
func (r *nestedRows) HasNextResultSet() bool { return r.more }

// NextResultSet goes to the result set that Next has found.
func (r *nestedRows) NextResultSet() (err error) {
	if !r.more {
		return io.EOF
	}
	r.more = false
	r.types, err = r.rows.ColumnTypes()
	return err
}

// ColumnTypeDatabaseTypeName returns what the database's driver says; so do those that follow.
func (r *nestedRows) ColumnTypeDatabaseTypeName(i int) string {
	return r.types[i].DatabaseTypeName()
}

func (r *nestedRows) ColumnTypeScanType(i int) reflect.Type { return r.types[i].ScanType() }

func (r *nestedRows) ColumnTypeNullable(i int) (nullable, ok bool) { return r.types[i].Nullable() }

func (r *nestedRows) ColumnTypeLength(i int) (length int64, ok bool) { return r.types[i].Length() }

func (r *nestedRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	return r.types[i].DecimalSize()
}

// arguments returns a driver's arguments as database/sql takes them.
func arguments(args []driver.NamedValue) []any {
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = a.Value
		if a.Name != "" {
			list[i] = sql.Named(a.Name, a.Value)
		}
	}
	return list
}

// once returns an error that database/sql does not repeat a statement for.
func once(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		return sql.ErrConnDone
	}
	return err
}
