package sqlgrammar

import (
	"context"
	"database/sql/driver"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Recorder is a server that records what it is sent. It is a connector for [database/sql.OpenDB].
type Recorder struct {
	// Changes is how many rows a statement changes.
	Changes driver.RowsAffected
	// Answers has the row that a query returns; others return none.
	Answers map[string][]driver.Value
	// Ignored is the text of statements that are not recorded, because the driver makes them.
	Ignored string

	mu    sync.Mutex
	texts []string
}

// Texts returns the statements, each once.
func (r *Recorder) Texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

func (r *Recorder) record(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if query = strings.TrimSpace(query); query != r.Ignored && !slices.Contains(r.texts, query) {
		r.texts = append(r.texts, query)
	}
}

// Connect implements [driver.Connector].
func (r *Recorder) Connect(context.Context) (driver.Conn, error) { return recording{r}, nil }

// Driver implements [driver.Connector].
func (r *Recorder) Driver() driver.Driver { return nil }

// recording is a connection to a recorder.
type recording struct{ *Recorder }

func (recording) Begin() (driver.Tx, error)                { return recordedTx{}, nil }
func (recording) Prepare(string) (driver.Stmt, error)      { return nil, driver.ErrSkip }
func (recording) Close() error                             { return nil }
func (recording) Ping(context.Context) error               { return nil }
func (recording) ResetSession(context.Context) error       { return nil }
func (recording) IsValid() bool                            { return true }
func (recording) CheckNamedValue(*driver.NamedValue) error { return nil }

func (recording) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return recordedTx{}, nil
}

func (c recording) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.record(query)
	return c.Changes, nil
}

func (c recording) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	c.record(query)
	return &recordedRows{row: c.Answers[query]}, nil
}

func (c recording) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return recordedStmt{c, query}, nil
}

type recordedStmt struct {
	conn recording
	text string
}

func (recordedStmt) Close() error                               { return nil }
func (recordedStmt) NumInput() int                              { return -1 }
func (recordedStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (recordedStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func (s recordedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.text, args)
}

func (s recordedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.text, args)
}

type recordedTx struct{}

func (recordedTx) Commit() error   { return nil }
func (recordedTx) Rollback() error { return nil }

type recordedRows struct{ row []driver.Value }

func (r *recordedRows) Columns() []string                               { return make([]string, len(r.row)) }
func (*recordedRows) Close() error                                      { return nil }
func (*recordedRows) ColumnTypeDatabaseTypeName(int) string             { return "" }
func (*recordedRows) ColumnTypeNullable(int) (_, _ bool)                { return false, false }
func (*recordedRows) ColumnTypePrecisionScale(int) (_, _ int64, _ bool) { return 0, 0, false }
func (*recordedRows) ColumnTypeScanType(int) reflect.Type               { return reflect.TypeFor[any]() }

func (r *recordedRows) Next(dest []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}
