package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-go/sluice/internal/postgres"
)

// Tx is the transaction that a handler writes through. It has the query
// methods that sqlc and similar tools need, and cannot commit: the store commits after the handler
// has returned nil. If a handler ends the transaction by SQL, it has failed and nothing is written.
//
// Rows and statements are closed with the transaction. In MySQL and MariaDB rows must be closed
// before the next statement, and before the handler returns. Like [sql.Tx] it may be used by
// several goroutines of the handler, all of which must have ended when the handler returns.
type Tx struct {
	tx          *sql.Tx
	transaction *transaction
	dialect     dialect
	safe        *sync.Map // the tables that were found safe
	known       *knownColumns

	mu      sync.Mutex
	guarded bool
	failed  error // of Insert, of guard, or of another face
	pins    []*pin

	// Other faces of the transaction: nested.go.
	db       *sql.DB   // nil: nobody has asked for it
	plain    *sql.Tx   // likewise
	nested   *nestedTx // that is open
	nestings int       // so many were opened
	closed   bool      // the handler has returned
}

// guard marks the transaction before the handler's first statement.
func (t *Tx) guard(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.guarded {
		return nil
	}
	if err := t.dialect.guard(ctx, t.transaction); err != nil {
		t.failed = cmp.Or(t.failed, fmt.Errorf("mark the transaction: %w", err))
		return t.failed
	}
	t.guarded = true
	return nil
}

// begin readies the transaction for a statement of its own.
func (t *Tx) begin(ctx context.Context) error {
	if err := t.enter(nil); err != nil {
		return err
	}
	return t.guard(ctx)
}

// ExecContext runs a statement that returns no rows.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.tx.ExecContext(ctx, query, args...)
}

// QueryContext runs a statement that returns rows.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext runs a statement that returns at most one row that matters.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.begin(ctx); err != nil {
		t.fail(err)
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx) // a row's error comes from a query alone
		cancel()
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext prepares a statement for the rest of the transaction.
func (t *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.tx.PrepareContext(ctx, query)
}

// RowError is an error of [Tx.Insert] that names the row that the database refused. A handler with
// one row for each event can convert it to a driver.EventError, which saves the engine the search
// for the event.
type RowError struct {
	Row int // index in rows
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap returns the database's own error.
func (e *RowError) Unwrap() error { return e.Err }

// Insert writes many rows in the fastest way of the database: by COPY in PostgreSQL, a bulk copy in
// SQL Server, LOAD DATA LOCAL INFILE in MySQL and MariaDB if the server's local_infile is on, and
// else by INSERT statements with many rows. Each row has a value for each column, in the same
// order. Names are quoted; the table's may have a schema, as in main.flights. If a row violates a
// constraint the error is a [*RowError], in SQLite also where the constraint has ON CONFLICT IGNORE
// or REPLACE. Rows that the table leaves out (by a trigger, or by IGNORE_DUP_KEY) are an error too;
// an INSTEAD OF trigger, in SQLite that of a view, answers for its rows itself. After any error
// some of the rows may have been written; the transaction then fails even if the handler returns
// nil.
func (t *Tx) Insert(ctx context.Context, table string, columns []string, rows [][]any) error {
	text := "INSERT INTO " + quoteTable(t.dialect, table) + " (" + strings.Join(columns, ", ") + ")"
	err := t.insert(context.WithValue(ctx, textKey{}, text), table, columns, rows)
	if err == nil {
		t.safe.Store(table, true) // not before: it may have been missing
		return nil
	}
	err = fmt.Errorf("insert into %s: %w", table, err)
	t.fail(err)
	return err
}

func (t *Tx) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *Tx) insert(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(columns) == 0 || len(columns) > t.dialect.variables() {
		return fmt.Errorf("%d columns: must be from 1 to %d", len(columns), t.dialect.variables())
	}
	if err := t.enter(nil); err != nil {
		return err
	}
	for i, row := range rows {
		if len(row) != len(columns) {
			return fmt.Errorf("row %d has %d values for %d columns", i, len(row), len(columns))
		}
	}
	if _, is := t.safe.Load(table); !is {
		if err := t.dialect.safe(ctx, t.tx, table); err != nil {
			return err
		}
	}
	return t.writing(ctx, table, columns, func() error { return t.write(ctx, table, columns, rows) })
}

// write inserts rows, each of which has a value for each column.
func (t *Tx) write(ctx context.Context, table string, columns []string, rows [][]any) error {
	verb, counted, err := t.dialect.inserting(ctx, t.tx, table)
	if err != nil {
		return err
	}
	text := insertText(t.dialect, verb, table, columns)
	if done, err := t.dialect.bulk(ctx, t.tx, table, t.pinned(table), columns, rows); err != nil {
		return t.refused(ctx, text(1), rows, 0, err)
	} else if done {
		return nil
	}
	most := min(t.dialect.chunk(), t.dialect.variables()/len(columns))
	var full *sql.Stmt // of chunks of the usual size
	for i := 0; i < len(rows); {
		chunk := firstChunk(rows[i:], most)
		args := slices.Concat(chunk...)
		var result sql.Result
		switch {
		case len(chunk) < most:
			result, err = t.tx.ExecContext(ctx, text(len(chunk)), args...)
		case full == nil:
			if full, err = t.tx.PrepareContext(ctx, text(most)); err != nil {
				return err
			}
			defer full.Close()
			fallthrough
		default:
			result, err = full.ExecContext(ctx, args...)
		}
		if err != nil {
			return t.refused(ctx, text(1), chunk, i, err)
		}
		if counted {
			if err := allTaken(result, len(chunk)); err != nil {
				return err
			}
		}
		i += len(chunk)
	}
	return nil
}

// allTaken returns an error if a table has taken fewer rows than it was given. A count may include
// rows that triggers have written.
func allTaken(result driver.Result, rows int) error {
	n, err := result.RowsAffected()
	if err == nil && n < int64(rows) {
		err = postgres.RowsLeftOut(n, rows)
	}
	return err
}

// chunkBytes is the size of texts and bytes from which a chunk takes no further row: servers limit
// the size of a statement.
const chunkBytes = 1 << 20

// firstChunk returns the first rows, at most so many.
func firstChunk(rows [][]any, most int) [][]any {
	size := 0
	for i, row := range rows {
		if i == most || size >= chunkBytes {
			return rows[:i]
		}
		size += sizeOf(row)
	}
	return rows
}

// sizeOf is the size of a row's texts and bytes.
func sizeOf(row []any) (size int) {
	for _, value := range row {
		switch v := value.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	return size
}

// refused finds the row of a chunk that violates a constraint by writing the rows one at a time:
// the statement of the whole chunk has written nothing.
func (t *Tx) refused(ctx context.Context, text string, chunk [][]any, first int, err error) error {
	if _, named := errors.AsType[*RowError](err); named || t.dialect.fault(err) != faultConstraint {
		return err
	}
	for i, row := range chunk {
		if _, err := t.tx.ExecContext(ctx, text, row...); t.dialect.fault(err) == faultConstraint {
			return &RowError{Row: first + i, Err: err}
		} else if err != nil {
			break
		}
	}
	return err
}

// insertText returns a function that makes the INSERT statement for a number of rows.
func insertText(d dialect, verb, table string, columns []string) func(rows int) string {
	var head strings.Builder
	head.WriteString(verb + " INTO " + quoteTable(d, table))
	for i, c := range columns {
		head.WriteString([]string{" (", ", "}[min(i, 1)] + d.quote(c))
	}
	head.WriteString(") VALUES ")
	tuple := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	return func(rows int) string {
		return head.String() + d.rebind(tuple+strings.Repeat(", "+tuple, rows-1))
	}
}

// quoteTable quotes the name of a table, which may have a schema.
func quoteTable(d dialect, name string) string {
	schema, table, qualified := strings.Cut(name, ".")
	if !qualified {
		return d.quote(name)
	}
	return d.quote(schema) + "." + d.quote(table)
}
