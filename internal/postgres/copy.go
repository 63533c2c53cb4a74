package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Copy writes rows to a table by COPY. The values go as text, which the server parses as its own
// cast of the text does, or refuses: nothing depends on what the client takes the columns' types
// for. In the binary form, which costs the server less, the bytes of one type can be a wrong value
// of another. It is for values of which each is a [BinaryValue] of the type that its column has:
// the server checks the types before the rows, and they cannot change until the transaction ends.
type Copy struct {
	Table   pgx.Identifier
	Columns []string
	// Row returns the row of an index, which lasts until the next one, and [io.EOF] after the last.
	Row func(i int) ([]any, error)
	// Check is called with what the columns are, before the first row, and chooses the form; its
	// error ends the copy. nil: nothing to check, and the form is text.
	Check func(Columns) (binary bool, err error)
	// Unchecked: whether the table is safe is the caller's business, see [CheckTable].
	Unchecked bool
}

// The forms of a COPY, and what comes before the rows of the binary one.
const (
	textForm     = `ENCODING 'UTF8')`
	binaryForm   = `ENCODING 'UTF8', FORMAT binary)`
	binaryHeader = "PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000"
)

// BinaryValue is a value that appends its bytes in the binary form of COPY, for a column of the
// type oid; null: there is none.
type BinaryValue interface {
	AppendBinary(b []byte, oid uint32) (_ []byte, null bool)
}

// Copier is a transaction that runs a Copy itself, to watch it.
type Copier interface {
	CopyText(ctx context.Context, c *Copy) (int64, error)
}

// RunTx runs the copy in a transaction, and returns how many rows the table has taken.
func (c *Copy) RunTx(ctx context.Context, tx pgx.Tx) (int64, error) {
	if own, ok := tx.(Copier); ok {
		return own.CopyText(ctx, c)
	}
	return c.Run(ctx, tx.Conn())
}

// CopyError names the row of a [Copy] that could not be written.
type CopyError struct {
	Row int
	Err error
}

func (e *CopyError) Error() string { return fmt.Sprintf("row %d: %v", e.Row, e.Err) }

// Unwrap returns the cause.
func (e *CopyError) Unwrap() error { return e.Err }

// RowFailed is an error of [Copy.Row], or its panic.
type RowFailed struct {
	Err   error
	Panic any
	Stack []byte
}

func (e *RowFailed) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("panic: %v", e.Panic)
	}
	return e.Err.Error()
}

// Unwrap returns Row's error.
func (e *RowFailed) Unwrap() error { return e.Err }

// Run copies the rows over a connection, in one round trip, and returns how many rows the table has
// taken. The first copy to a table also reads its columns. If it is known which row failed the
// error is a [*CopyError]; an error of Row is a [*RowFailed]; [*ColumnsError] says that a column is
// no longer what it was.
func (c *Copy) Run(ctx context.Context, conn *pgx.Conn) (taken int64, err error) {
	if tracer, ok := connectionOf(conn).config.Tracer.(pgx.CopyFromTracer); ok {
		ctx = tracer.TraceCopyFromStart(ctx, conn, pgx.TraceCopyFromStartData{TableName: c.Table, ColumnNames: c.Columns})
		defer func() {
			tag := pgconn.NewCommandTag("COPY " + strconv.FormatInt(taken, 10))
			tracer.TraceCopyFromEnd(ctx, conn, pgx.TraceCopyFromEndData{CommandTag: tag, Err: err})
		}()
	}
	known, err := c.known(ctx, conn)
	if err != nil {
		return 0, err
	}
	binary := false
	if c.Check != nil {
		if binary, err = c.Check(known.columns); err != nil {
			return 0, c.refused(conn, err)
		}
	}
	rows := &copyRows{copy: c, types: conn.TypeMap(), known: known, buffer: copyBuffers.Get().(*[]byte), encode: (*copyRows).text}
	form := textForm
	if binary {
		form, rows.encode = binaryForm, (*copyRows).binary
		*rows.buffer = append(*rows.buffer, binaryHeader...)
	}
	tag, err := conn.PgConn().CopyFrom(ctx, rows, known.sql+form)
	rows.close()
	*rows.buffer = (*rows.buffer)[:0]
	copyBuffers.Put(rows.buffer)
	if err != nil {
		return 0, c.failed(rows, err)
	}
	return tag.RowsAffected(), nil
}

// refused returns the error of a Check, after which the connection asks for the columns again.
func (c *Copy) refused(conn *pgx.Conn, err error) error {
	c.forget(conn)
	return Unfit(err)
}

// failed explains an error of a copy. That a column has changed comes first: then a value may have
// been refused here for what the column was.
func (c *Copy) failed(rows *copyRows, err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if ok {
		if changed := rows.known.changed(e); changed != nil {
			return changed
		}
	}
	if rows.err != nil {
		return rows.err
	}
	if ok {
		if row, found := copyRow(e, c.Table[len(c.Table)-1], rows.count); found {
			return &CopyError{Row: row, Err: err}
		}
	}
	return err
}

// copyRow finds the row that PostgreSQL names as the context of an error.
func copyRow(e *pgconn.PgError, table string, n int) (row int, found bool) {
	row = -1
	for line := range strings.Lines(e.Where) {
		if rest, found := strings.CutPrefix(line, "COPY "+table+", line "); found {
			digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
			if number, err := strconv.Atoi(digits); err == nil {
				row = number - 1
			}
		}
	}
	return row, row >= 0 && row < n
}

// RowsLeftOut returns the error of an insert that has written fewer rows than it was given: without
// an error the events of the others would be lost.
func RowsLeftOut(written int64, of int) error {
	return fmt.Errorf("%d of %d rows were written: a trigger or a rule of the table leaves out or moves the others: use INSERT statements (in a pipeline target.statement), or change the trigger", written, of)
}

// copyBuffers are those of copies that have ended.
var copyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// copyRows has the rows in a form of COPY.
type copyRows struct {
	copy   *Copy
	encode func(r *copyRows, b []byte, i int, value any) ([]byte, error) // appends a value of column i
	types  *pgtype.Map
	known  *knownTable
	buffer *[]byte
	read   int // of the buffer
	count  int // of rows that were made
	ended  bool
	err    error // of a row

	// mu is held by Read: where the connection is lost, pgx returns while its goroutine still
	// reads.
	mu     sync.Mutex
	closed bool
}

// close waits for a Read that is under way. After it there is none.
func (r *copyRows) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// errNoRow is sent to PostgreSQL instead of a row's error: the server ends the session of a client
// whose reason is longer than 10,000 bytes.
var errNoRow = errors.New("the client has no row")

// Read implements [io.Reader]. pgx calls it on a goroutine of its own.
func (r *copyRows) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errNoRow
	}
	for !r.ended && len(*r.buffer)-r.read < len(p) {
		if r.read > 0 {
			*r.buffer, r.read = slices.Delete(*r.buffer, 0, r.read), 0
		}
		if r.err = r.row(); r.err != nil {
			return 0, errNoRow
		}
	}
	n := copy(p, (*r.buffer)[r.read:])
	r.read += n
	if r.ended && r.read == len(*r.buffer) {
		return n, io.EOF
	}
	return n, nil
}

// row appends the next row.
func (r *copyRows) row() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &RowFailed{Panic: v, Stack: debug.Stack()}
		}
	}()
	values, err := r.copy.Row(r.count)
	switch {
	case err == io.EOF:
		r.ended = true
		return nil
	case err != nil:
		return &RowFailed{Err: err}
	case len(values) != len(r.copy.Columns):
		return &CopyError{r.count, fmt.Errorf("%d values for %d columns", len(values), len(r.copy.Columns))}
	}
	b := *r.buffer
	for i, value := range values {
		if b, err = r.encode(r, b, i, value); err != nil {
			return &CopyError{r.count, fmt.Errorf("column %s: %w", r.copy.Columns[i], err)}
		}
	}
	*r.buffer = b
	r.count++
	return nil
}

func (r *copyRows) text(b []byte, i int, value any) ([]byte, error) {
	b, err := appendCopied(b, r.types, r.known.bases[i], value)
	return append(b, "\t\n"[min(1, (i+1)/len(r.copy.Columns))]), err
}

func (r *copyRows) binary(b []byte, i int, value any) ([]byte, error) {
	if i == 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(len(r.copy.Columns)))
	}
	own, ok := value.(BinaryValue)
	if !ok {
		return b, fmt.Errorf("%T has no binary form", value)
	}
	at := len(b)
	b, null := own.AppendBinary(append(b, 0, 0, 0, 0), r.known.bases[i])
	length := uint32(len(b) - at - 4)
	if null {
		length = math.MaxUint32
	}
	binary.BigEndian.PutUint32(b[at:], length)
	return b, nil
}
