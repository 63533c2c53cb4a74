package pgstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/postgres"
	"github.com/sluice-go/sluice/internal/sqlshape"
)

// Errors for a handler that tries to end the transaction.
var (
	errCommit   = errors.New("a handler cannot commit: it returns nil, and Sluice commits its writes together with the checkpoint")
	errRollback = errors.New("a handler cannot roll back: it returns an error, and Sluice undoes its writes")
)

// handlerTx is the transaction as the handler gets it. It cannot be ended.
type handlerTx struct{ scope }

func (tx *handlerTx) Commit(context.Context) error   { return errCommit }
func (tx *handlerTx) Rollback(context.Context) error { return errRollback }

// savepoint is a transaction that the handler began inside its own, and may
// end.
type savepoint struct{ scope }

func (s *savepoint) Commit(ctx context.Context) error {
	s.ended = true
	return s.scope.Tx.Commit(ctx)
}

func (s *savepoint) Rollback(ctx context.Context) error {
	s.ended = true
	return s.scope.Tx.Rollback(ctx)
}

// scope passes a handler's statements on. It refuses those that would end the transaction, and
// shows its watch every error, because a handler may drop an error or keep only its text.
type scope struct {
	pgx.Tx
	watch *watch
	ended bool // by its savepoint's Commit or Rollback
}

// watch records what a handler does with the transaction.
type watch struct {
	conn     *pgconn.PgConn
	ended    atomic.Bool     // the connection was given to the handler, and has ended the transaction
	returned atomic.Bool     // the handler has returned
	failed   *pgconn.PgError // the last error, without those that follow from it
	// texts has for each error the statement that failed so, or those of which one did; of many
	// errors, which a handler has got over by savepoints, the first.
	texts  map[*pgconn.PgError][]string
	ran    sqlshape.Log // those that succeeded
	unsafe error        // a table that must not be written to
	open   closer       // what was opened last, and may have been left open
}

type closer interface{ close() }

// aborted is the code of all errors in a transaction after the first.
const aborted = "25P02"

// mostFailures bounds the errors of a handler whose statements are remembered.
const mostFailures = 256

// note records the outcome of a statement, or of one of several, and returns it.
func (w *watch) note(err error, texts ...string) error {
	var e *pgconn.PgError
	switch {
	case w.returned.Load():
	case err == nil:
		for _, text := range texts {
			w.ran.Note(text)
		}
	case errors.As(err, &e) && e.Code != aborted:
		w.failed = e
		if w.texts == nil {
			w.texts = map[*pgconn.PgError][]string{}
		}
		if len(w.texts) < mostFailures {
			w.texts[e] = texts
		}
	}
	return err
}

// outage returns PostgreSQL's error that is not the event's fault, if a handler has failed with err
// because of one; else nil. One that aborted the transaction is the cause, whatever err says.
func (w *watch) outage(err error, aborted bool) *pgconn.PgError {
	if e := postgres.OutageIn(err); e != nil || w.failed == nil || !aborted {
		return e
	}
	return postgres.OutageIn(w.failed)
}

// refused returns PostgreSQL's error that may be every event's, if a handler has failed with err
// because of one, and the shapes of the statements that it is about; else nil.
func (w *watch) refused(err error, aborted bool) (*pgconn.PgError, []string) {
	e, _ := errors.AsType[*pgconn.PgError](err)
	if e == nil || !postgres.StatementFault(e) {
		if e = w.failed; e == nil || !aborted || !postgres.StatementFault(e) {
			return nil, nil
		}
	}
	texts, seen := w.texts[e]
	if !seen {
		texts = []string{sqlshape.Unseen}
	}
	shapes := make([]string, len(texts))
	for i, text := range texts {
		shapes[i] = sqlshape.Words(text)
	}
	slices.Sort(shapes)
	return e, slices.Compact(shapes)
}

// admit refuses statements after the handler's end, and those that would end
// the transaction.
func (w *watch) admit(sql string) error {
	if w.returned.Load() {
		return pgx.ErrTxClosed
	}
	if words := postgres.Ending(w.conn, sql); words != "" {
		return fmt.Errorf("%s: a handler cannot end its transaction: it returns, and Sluice does it", words)
	}
	return nil
}

// finish ends the handler's use of the transaction.
func (w *watch) finish() {
	w.returned.Store(true)
	if w.open != nil {
		w.open.close()
	}
	if !w.conn.IsClosed() {
		w.conn.Frontend().Untrace()
	}
}

// Conn returns the connection, as pgx's Tx does. Nothing refuses what a handler does with it, so
// the server's messages are watched from then on: an aborted transaction cannot be asked which one
// it is.
func (s *scope) Conn() *pgx.Conn {
	if !s.watch.returned.Load() {
		s.watch.ran.Note(sqlshape.Unseen)
		s.watch.conn.Frontend().Trace(endings{s.watch}, pgproto3.TracerOptions{SuppressTimestamps: true})
	}
	return s.Tx.Conn()
}

// endings gets a line for each message of the protocol, and notes those that say that a transaction
// was committed, or that none is open.
type endings struct{ watch *watch }

func (e endings) Write(line []byte) (int, error) {
	message, isServers := bytes.CutPrefix(line, []byte("B\t"))
	text := bytes.TrimSpace(message)
	switch {
	case !isServers:
	case bytes.HasPrefix(text, []byte("ReadyForQuery")) && bytes.HasSuffix(text, []byte(" I")),
		bytes.HasPrefix(text, []byte("CommandComplete")) && (bytes.HasSuffix(text, []byte(`"COMMIT"`)) || bytes.HasSuffix(text, []byte(`"PREPARE TRANSACTION"`))):
		e.watch.ended.Store(true)
	}
	return len(line), nil
}

func (s *scope) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := s.watch.admit(""); err != nil {
		return nil, err
	}
	tx, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, s.watch.note(err)
	}
	return &savepoint{scope{Tx: tx, watch: s.watch}}, nil
}

func (s *scope) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := s.watch.admit(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := s.Tx.Exec(ctx, sql, args...)
	return tag, s.watch.note(err, sql)
}

func (s *scope) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := s.watch.admit(sql); err != nil {
		return failed(err).Query()
	}
	r, err := s.Tx.Query(ctx, sql, args...)
	watched := s.watch.rows(r, sql)
	if err != nil {
		s.watch.note(err, sql)
	}
	return watched, err
}

func (s *scope) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := s.watch.admit(sql); err != nil {
		return failed(err).QueryRow()
	}
	return &row{s.Tx.QueryRow(ctx, sql, args...), s.watch, sql}
}

func (s *scope) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := s.watch.admit(sql); err != nil {
		return nil, err
	}
	sd, err := s.Tx.Prepare(ctx, name, sql)
	return sd, s.watch.note(err, sql)
}

// CopyFrom sends text, as [Insert] does. pgx would send the bytes of the types that the columns had
// when its connection met the table.
func (s *scope) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return s.CopyText(ctx, &postgres.Copy{Table: table, Columns: columns, Unchecked: true, Row: func(int) ([]any, error) {
		if !src.Next() {
			return nil, cmp.Or(src.Err(), io.EOF)
		}
		return src.Values()
	}})
}

// CopyText implements [postgres.Copier].
func (s *scope) CopyText(ctx context.Context, c *postgres.Copy) (int64, error) {
	if err := s.watch.admit(""); err != nil {
		return 0, err
	}
	if s.ended {
		return 0, pgx.ErrTxClosed
	}
	n, err := c.Run(ctx, s.Tx.Conn())
	if errors.Is(err, driver.ErrUnsafeTable) {
		s.watch.unsafe = err
	}
	return n, s.watch.note(err, "COPY "+c.Table.Sanitize()+" "+pgx.Identifier(c.Columns).Sanitize())
}

func (s *scope) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	texts := make([]string, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		if err := s.watch.admit(q.SQL); err != nil {
			return failed(err)
		}
		texts[i] = q.SQL
	}
	r := &results{s.Tx.SendBatch(ctx, b), s.watch, texts}
	s.watch.open = r
	return r
}

// failed makes results whose methods all return err.
func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }

// rows are a handler's, watched.
type rows struct {
	pgx.Rows
	watch *watch
	text  string
}

func (w *watch) rows(r pgx.Rows, text string) *rows {
	watched := &rows{r, w, text}
	w.open = watched
	return watched
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.watch.note(r.Rows.Err(), r.text)
	return false
}

func (r *rows) Close() {
	r.Rows.Close()
	r.watch.note(r.Rows.Err(), r.text)
}

func (r *rows) close() { r.Rows.Close() }

type row struct {
	pgx.Row
	watch *watch
	text  string
}

func (r *row) Scan(dest ...any) error { return r.watch.note(r.Row.Scan(dest...), r.text) }

// results are those of a handler's batch, watched.
type results struct {
	pgx.BatchResults
	watch *watch
	texts []string // of the statements whose results were not asked for
}

// next returns the text of the statement whose result is asked for.
func (r *results) next() (text string) {
	if len(r.texts) > 0 {
		text, r.texts = r.texts[0], r.texts[1:]
	}
	return text
}

func (r *results) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	return tag, r.watch.note(err, r.next())
}

func (r *results) Query() (pgx.Rows, error) {
	q, err := r.BatchResults.Query()
	text := r.next()
	if err != nil {
		r.watch.note(err, text)
	}
	return &rows{q, r.watch, text}, err
}

func (r *results) QueryRow() pgx.Row {
	return &row{r.BatchResults.QueryRow(), r.watch, r.next()}
}

func (r *results) Close() error { return r.watch.note(r.BatchResults.Close(), r.texts...) }
func (r *results) close()       { r.BatchResults.Close() }
